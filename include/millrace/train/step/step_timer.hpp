// StepTimer: measures a training step. While a step is enqueued, the runner names each point that it reaches, and the
// timer records a timestamp there on the device's compute stream. Afterwards finish() turns these timestamps and the
// collective's spans into the phases of StepMetrics and into the values that load balancing and the account need.
//
// Timestamps exist twice, and a step uses those of its parity (step % 2). So the timestamps of one step stay valid
// while the next one is enqueued. All record functions may be part of a captured step.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/device/device.hpp"
#include "millrace/runs/metrics.hpp"
#include "millrace/telemetry/trace.hpp"
#include "millrace/train/distributed/collective_stats.hpp"
#include "millrace/train/distributed/step_timing.hpp"

namespace millrace {

// What the host knows about a step once it is enqueued.
struct EnqueuedStep {
  std::int64_t number = 0;  // within the run, from 1
  std::int64_t epoch = 0;
  std::int64_t rows = 0;     // samples of all ranks in this step
  std::int64_t samples = 0;  // samples that the run has seen after this step
  double learning_rate = 0;
  bool full = false;            // no other step has more rows
  int micro_batches = 0;        // of this rank
  int empty = 0;                // places of the step before them, in which only other ranks have rows
  std::int64_t first_rows = 0;  // rows of this rank's first micro-batch
  std::int64_t unread = 0;      // samples of this rank that could not be read
};

struct StepTimerSpec {
  int max_micro_batches = 0;           // of this rank in a step
  std::vector<int> all_gather_tags;    // tag of each all-gather that the forward pass waits for; empty without ZeRO
  int optimizer_waits = 0;             // times that the optimizer waits for other ranks
  std::size_t reducer_milestones = 0;  // Reducer::milestones()
  bool single_rank = false;
  bool has_input_pass = true;      // the network begins with the conversion of its only input
  Collective* exchange = nullptr;  // ExecutionContext::exchange
};

class StepTimer {
 public:
  // The points that each micro-batch passes, in this order.
  enum class Point { handed_over, on_device, forward_done, backward_done };

  StepTimer(Device&, Collective&, StepTimerSpec);
  // Disabled: no timestamps are recorded, and phases are zero. Only while no step is in flight.
  void disable(bool disabled) { enabled_ = !disabled; }

  // While a step is enqueued.
  void begin(int parity);
  void record(int parity, int micro_batch, Point);
  void record_gradients_reduced(int parity, int micro_batches);
  void record_optimizer_done(int parity, int micro_batches);
  // Timestamps that other parts of the step record themselves, two for each wait: before it and after it.
  TimestampSeries all_gather_waits(int parity) { return series(parity, 1); }
  TimestampSeries optimizer_waits(int parity) { return series(parity, 1 + 2 * all_gathers()); }
  TimestampSeries reducer_milestones(int parity) { return series(parity, milestones_begin()); }
  TimestampSeries input_pass(int parity) { return series(parity, input_begin()); }  // before and after
  void skip_input_pass(int parity);                                                 // for a rank without rows
  void skip_optimizer_waits(int parity);                                            // for a step without the optimizer

  // While the results of a step are collected: call the first two around the agreement of the ranks, then finish() once
  // for each step, in order. finish() adds the phases, seconds and samples per second to the metrics.
  void begin_sync_wait();
  void end_sync_wait();
  void finish(int parity, const EnqueuedStep&, StepMetrics&);

  // Results for the step that was finished last.
  const std::vector<CommSpan>& comm_spans() const { return comm_spans_; }
  const CollectiveWaits& waits() const { return waits_; }
  const StepTiming& timing() const { return timing_; }
  void append_phase_spans(std::vector<Span>&) const;  // times are on the host's clock

  int max_timestamps() const { return int(times_.size()); }  // most timestamps that a step records on the device

 private:
  // The timestamps are numbered in this order: the begin of the step (0); two for each wait for an all-gather; two for
  // each wait of the optimizer; the reducer's milestones; two around the input pass of the first micro-batch; one for
  // each Point of each micro-batch; gradients reduced; optimizer done.
  static constexpr int points = 4;
  int all_gathers() const { return int(spec_.all_gather_tags.size()); }
  int waits_count() const { return all_gathers() + spec_.optimizer_waits; }
  int milestones_begin() const { return 1 + 2 * waits_count(); }
  int input_begin() const { return milestones_begin() + int(spec_.reducer_milestones); }
  int micro_batches_begin() const { return input_begin() + 2; }
  int number_of(int micro_batch, Point p) const { return micro_batches_begin() + points * micro_batch + int(p); }
  int gradients_reduced(int micro_batches) const { return micro_batches_begin() + points * micro_batches; }
  int optimizer_done(int micro_batches) const { return gradients_reduced(micro_batches) + 1; }
  // The timestamp before this one, in the order of the step's points.
  int previous(int number) const { return number == micro_batches_begin() ? 0 : number - 1; }
  double time(int number) const { return times_[std::size_t(number)]; }  // seconds since the step began
  TimestampSeries series(int parity, int number) {
    return {enabled_ ? timestamps_[std::size_t(parity)].get() : nullptr, number};
  }
  void record(int parity, int number);

  void read_timestamps(int parity);
  void add_phases(StepMetrics&) const;
  void move_waits_to_communication(StepMetrics&);
  void move_blocking_spans_to_communication(StepMetrics&);
  double compute_seconds(double until) const;
  void compute_timing();

  Device& device_;
  Collective& collective_;
  StepTimerSpec spec_;
  bool enabled_ = true;
  std::array<std::unique_ptr<Timestamps>, 2> timestamps_;
  std::array<double, 2> began_{};  // when the host began to enqueue the step, by parity
  double sync_began_ = 0;

  // The step that was finished last.
  EnqueuedStep step_;
  std::vector<double> times_;  // by number, seconds since the step began on the device
  std::vector<CommSpan> comm_spans_, exchange_spans_;
  CollectiveWaits waits_;
  StepTiming timing_;
  double enqueue_began_ = 0;   // when the host began to enqueue it, on the host's clock
  double device_began_ = 0;    // when the device began it, on the host's clock
  double device_seconds_ = 0;  // time on the device until the optimizer was done
  double finished_ = 0;        // when its results were collected, on the host's clock
};

}  // namespace millrace
