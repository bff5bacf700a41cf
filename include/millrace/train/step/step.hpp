// StepRunner: one optimizer step. Enqueues everything, reads nothing; results are collected later by step number.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "millrace/data/load/loader.hpp"
#include "millrace/runs/metrics.hpp"
#include "millrace/telemetry/trace.hpp"
#include "millrace/train/distributed/collective_stats.hpp"
#include "millrace/train/distributed/reducer.hpp"
#include "millrace/train/distributed/step_timing.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

// What the ranks add up after a step, and agree on.
struct StepResult {
  std::int64_t step = 0;  // number of the step, from 1
  StepMetrics metrics;
  bool found_inf = false, stop = false, checkpoint = false;
  bool counted = true;    // a sample at least
  bool at_floor = false;  // the loss scale can't fall further
};

// Steps that may be enqueued before the results of the one before are collected: none on a device that works at once.
int steps_in_flight(const Device&);

// The state that training starts with.
void init_loss_scale(const Session&, Network&);

class StepRunner {
 public:
  StepRunner(Session&, Network&, Loader&);
  void disable_optimizer() { optimizes_ = false; }  // of all steps: for a probe
  // Of the steps enqueued from now on, where none is in flight: their phases are not told. For a bench.
  void disable_timestamps(bool out) { records_timestamps_ = !out; }
  // The step with this number within the run (from 0). Marks and the state's copy land in slot step % 2.
  void enqueue(std::int64_t step, double learning_rate);
  // Results of an enqueued step; collective. flags: this rank's wish to stop, and to write a checkpoint.
  StepResult collect(std::int64_t step, bool wants_stop, bool wants_checkpoint);
  const Reducer& reducer() const { return reducer_; }
  const std::vector<CommSpan>& spans() const { return spans_; }  // of the step collected last
  const CollectiveWaits& waits() const { return waits_; }        // the same
  const StepTiming& pace() const { return pace_; }               // the same
  void phase_spans(std::vector<Span>&) const;                    // the same; added, on the host's clock
  int marks() const { return int(times_.size()); }               // of a full step, on the device

 private:
  // Marks of a step: 0 begin; for each micro-batch: the loader has handed it over, it is on the device, forward done,
  // backward done; then sums done, optimizer done.
  static constexpr int timestamps_per_micro_batch = 4;
  static int timestamp_count(int micro_batches) { return 1 + timestamps_per_micro_batch * micro_batches + 2; }
  void record_timestamp(int slot, int number) {
    if (records_timestamps_)
      marks_[std::size_t(slot)]->record(Stream::compute, number ? number + timestamp_offset() : 0);
  }
  // Between mark 0 and the others: 2 marks for each wait where weights are gathered, then the reducer's milestones,
  // then before and after the input pass of the first micro-batch.
  TimestampSeries timestamps_from(int slot, int number) {
    return {records_timestamps_ ? marks_[std::size_t(slot)].get() : nullptr, number};
  }
  TimestampSeries wait_timestamps(int slot, int wait) { return timestamps_from(slot, 1 + 2 * wait); }
  int all_gather_waits() const { return network_.weight_all_gather() ? network_.weight_all_gather()->waits() : 0; }
  int all_waits() const { return all_gather_waits() + network_.optimizer_waits(); }
  int input_timestamp() const { return 1 + 2 * all_waits() + int(reducer_.milestones().size()); }
  int timestamp_offset() const { return input_timestamp() + 1; }
  // Micro-batches [first, first + pieces) of a step's `count`, as work that is recorded: it holds by value, or by
  // reference what lives as long as the runner, and changes nothing on the host that a later step would need to see.
  struct MicroBatchWork {
    Program* program = nullptr;
    Batch batch;
    bool repack = false;  // the program's derived weights, before its first use in the step
  };
  struct Group {
    int slot = 0, first = 0, count = 0;
    std::vector<MicroBatchWork> pieces;
  };
  void take(int slot, int first, int pieces);  // into group_
  void run(const Group&);
  void forward_backward(const Group&, int number);
  void run_without_rows(const Group&);
  void end_of_step(int slot, int record_timestamp);            // sums and optimizer
  const char* name_step(const char* what, std::int64_t step);  // valid until the next
  struct EnqueuedStep {
    std::int64_t step = 0, epoch = 0, rows = 0, samples = 0;
    double learning_rate = 0, began = 0, ended = 0;
    int micro_batches = 0;
    std::int64_t first_rows = 0;  // of the first micro-batch
    std::int64_t unread = 0;      // samples of this rank
  };
  void compute_step_timing(const EnqueuedStep&, std::size_t marks);  // from times_ and spans_
  // Moves the waits for other ranks to communication's account: from times_ and spans_.
  void move_waits_to_communication(const EnqueuedStep&, StepMetrics&);
  Session& s_;
  Network& network_;
  Loader& loader_;
  Reducer reducer_;
  std::array<std::unique_ptr<Timestamps>, 2> marks_;
  std::vector<double> times_;
  std::vector<CommSpan> spans_;
  CollectiveWaits waits_;
  StepTiming pace_;
  std::vector<MicroBatch> share_;
  std::array<EnqueuedStep, 2> enqueued_;
  std::array<char, 48> step_name_{};
  double collected_ = 0;           // when the last results came
  double origin_ = 0, whole_ = 0;  // of the step collected last: mark 0 on the host's clock, seconds to its last
  std::int64_t last_step_ = 0;     // the number of that step, from 1
  CapturePartition capture_partition_;
  bool optimizes_ = true, records_timestamps_ = true;
  Group group_;
  // The groups of a step by slot of the marks, the step's rows over all ranks, place in the step, and where the first
  // batch lies. The first holds the gathering of weights, the last the sums and the optimizer, mostly all in one. What
  // ranks do together must come from the same recording on all of them, or from none: the rows say all there is to
  // know of every rank's share, and so does the batch's place, which follows from them where there is anything to
  // record.
  std::map<std::tuple<int, std::int64_t, int, const void*>, std::unique_ptr<CapturedStep>> captured_;
  std::size_t changes_ = 0;  // of the shares: those recorded are of the last
};

}  // namespace millrace
