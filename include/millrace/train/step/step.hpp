// StepRunner: one optimizer step of training. enqueue() issues all work of a step without waiting for the device;
// collect() waits for the step later and agrees with the other ranks on its results:
//
//   runner.enqueue(step, learning_rate);                // take batches, forward, backward, all-reduce, optimizer
//   StepResult r = runner.collect(step, {stop, save});  // loss and times; whether any rank wants to stop or to save
//
// All ranks call both functions for the same steps in the same order.
//
// A batch lies in a slot of device memory that the loader reuses. Two events guard the slot; class Event in device.hpp
// explains them.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "millrace/data/load/loader.hpp"
#include "millrace/runs/metrics.hpp"
#include "millrace/train/distributed/reducer.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/loss_means.hpp"
#include "millrace/train/step/step_timer.hpp"

namespace millrace {

// The result of one step, the same on all ranks except for metrics.phase_seconds and metrics.seconds.
struct StepResult {
  std::int64_t step = 0;  // number of the step, from 1
  StepMetrics metrics;
  bool found_inf = false;   // the gradient was not finite, so the optimizer skipped the step
  bool stop = false;        // a rank wants to stop
  bool checkpoint = false;  // a rank wants a checkpoint
  bool saving = false;      // a rank still writes an earlier checkpoint
  // The gradient norm does not have the same bits on all ranks, so their weights differ from now on at the latest.
  bool replicas_differ = false;
  bool counted = true;    // at least one label counts, with a weight above 0; otherwise the loss is NaN
  bool at_floor = false;  // the loss scale cannot be lowered further
};

// What this rank tells the others at the end of a step.
struct StepFlags {
  bool stop = false;        // it wants to stop
  bool checkpoint = false;  // it wants a checkpoint
  bool saving = false;      // it still writes an earlier checkpoint
};

// How many steps may be enqueued before the results of an earlier one are collected: 0 on a device that runs work
// immediately (the CPU), else 1.
int steps_in_flight(const Device&);

// Sets the loss scale and its schedule as they are before the first step.
void init_loss_scale(const Session&, Network&);

class StepRunner {
 public:
  StepRunner(Session&, Network&, Loader&);
  // For benchmarks and probes, while no step is in flight: steps without the optimizer, or without timestamps.
  void disable_optimizer() { optimizes_ = false; }
  void disable_timestamps(bool disabled) { timer_.disable(disabled); }
  // step: number within the run, from 0. Timestamps and results exist twice; a step uses those of its parity, step % 2.
  void enqueue(std::int64_t step, double learning_rate);
  // Waits until the device has done the enqueued step, and returns its results. Collective.
  StepResult collect(std::int64_t step, const StepFlags&);
  const Reducer& reducer() const { return reducer_; }
  const StepTimer& timer() const { return timer_; }

 private:
  struct MicroBatchWork {
    Program* program = nullptr;
    Batch batch;
    bool repack = false;  // the first use of the program in this step, so its packed weights are out of date
  };
  // Places [begin, end) of a step, which has a place for each micro-batch of this rank, and at least one. If norms are
  // synchronised, it has as many as the rank with most micro-batches. The first `empty` places have no rows here: so
  // the last micro-batches of all ranks coincide, and with them the all-reduces of the gradient.
  //
  // A group is captured as a whole, and its captured work keeps a copy of it. It refers only to objects that outlive
  // the runner.
  struct Group {
    int parity = 0;  // of the step: step % 2
    int begin = 0, end = 0;
    int places = 1, empty = 0;                    // of the step
    std::vector<MicroBatchWork> work;             // the micro-batches of the group
    int count() const { return places - empty; }  // micro-batches of the step
    int first_place() const { return std::max(begin, empty); }
    int first() const { return first_place() - empty; }  // number of the first one in `work`
    bool begins_step() const { return begin == 0; }
    bool ends_step() const { return end == places; }
  };

  StepTimerSpec timer_spec() const;
  EnqueuedStep& plan_step(std::int64_t step, double learning_rate);
  void write_step_state(int parity, const EnqueuedStep&);
  void drop_outdated_captures(std::int64_t step);
  // The parts of a step, in this order. take() fills group_.work with the next batches.
  void take(int size);
  void run_captured(int group, int groups, std::int64_t rows);
  void run(const Group&);
  void forward_backward(const Group&, int micro_batch);
  void run_without_rows(const Group&, int place);
  void all_reduce_statistics();
  void all_reduce_loss_weight();
  void add_exactly();     // the results of a micro-batch
  void reduce_exactly();  // the results of the step
  void damage_gradient(const EnqueuedStep&);
  void end_of_step(const Group&);  // waits for the gradient's all-reduces, then the optimizer

  StepResult agree(const StepState&, const EnqueuedStep&, const StepFlags&);
  const char* name_step(const char* what, std::int64_t step);  // valid until the next call

  Session& s_;
  Network& network_;
  Loader& loader_;
  Reducer reducer_;
  StepTimer timer_;
  CapturePartition capture_partition_;
  bool optimizes_ = true;
  // Only with run.reproducible = strict. Each micro-batch then overwrites gradient, statistics and loss.
  struct ExactSums {
    ExactSum gradient, statistics;
    ExactLosses losses;
  };
  std::unique_ptr<ExactSums> exact_;
  LossMeans losses_;
  std::array<EnqueuedStep, 2> enqueued_;  // by parity
  std::vector<MicroBatch> share_;         // this rank's micro-batches of the step that is being enqueued
  Group group_;
  // Captured groups by parity, rows of the step over all ranks, number of the group, and address of its first batch.
  // Groups that communicate must be captured on all ranks at the same step, or on none. That holds because the rows
  // determine every rank's micro-batches, and these determine the address.
  std::map<std::tuple<int, std::int64_t, int, const void*>, std::unique_ptr<CapturedStep>> captured_;
  std::size_t captured_split_ = 0;  // the micro-batch split that captured_ belongs to
  std::array<char, 48> step_name_{};
};

}  // namespace millrace
