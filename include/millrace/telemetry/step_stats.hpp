// How long the optimizer steps took, phase by phase, and the loss scale over a run.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace {

// Seconds of one optimizer step, over a run.
struct StepTimeStats {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, longest = 0;
};

// One bin of a histogram.
struct TimeBin {
  double seconds = 0;  // the middle of the bin
  std::uint64_t count = 0;
};

// Percentiles in bounded memory: bins of 1 % width, from 1 ns on.
class StepTimeHistogram {
 public:
  void add(double seconds);
  StepTimeStats stats() const;
  std::vector<TimeBin> bins() const;  // the non-empty bins, in ascending order

 private:
  static double middle_of(std::size_t bin);
  static constexpr int per_octave = 64, octaves = 40;
  std::array<std::uint64_t, per_octave * octaves> bins_{};
  std::uint64_t count_ = 0;
  double sum_ = 0, longest_ = 0;
};

// When the last `bytes` bytes of the float32 gradient are final.
struct ReadyBytes {
  std::uint64_t bytes = 0;
  double seconds = 0;  // since the last backward pass began, without all-reduces that ran in between
};

// The timing of full steps after the warm-up, from which scaling predictions are made. Times are mean seconds per step.
struct StepTimingStats {
  std::uint64_t steps = 0;
  double step = 0;
  double input = 0, forward = 0, backward = 0, optimizer = 0;  // over all micro-batches
  double last_backward = 0;                                    // the backward pass of the last micro-batch
  double input_pass = 0;  // the part of forward that converts the input, per sample; 0: the network has none
  double sums = 0;        // waits for all-reduces of gradients
  double meeting = 0;     // sync wait: the synchronisation of the ranks after a step
  double other = 0;       // the rest of the step
  int micro_batches = 1;
  double samples = 0;             // of a step, over all ranks
  std::uint64_t stats_bytes = 0;  // batch statistics that are all-reduced too
  bool beside = true;  // communication progresses while the step computes: on a GPU, or by a dedicated thread
  bool meets = true;   // no step begins before the ranks have synchronised after the step before
  std::vector<ReadyBytes> ready;  // in ascending order; the last entry is the whole gradient
  std::vector<TimeBin> own;       // histogram of step times without the waits for other ranks
};

// With fp16: the loss scale from a step on.
struct LossScaleChange {
  std::int64_t step = 0;
  double scale = 1;
};

// The loss scales of a run, in bounded memory.
class LossScaleStats {
 public:
  static constexpr std::size_t most_kept = 64;
  LossScaleStats() = default;
  LossScaleStats(std::vector<LossScaleChange> kept, std::uint64_t changes)
      : kept_(std::move(kept)), changes_(changes) {}
  void add(std::int64_t step, double scale);  // call for each step
  // The scale of the first step, then each change. Of more than most_kept, the first half and the last half are kept.
  const std::vector<LossScaleChange>& kept() const { return kept_; }
  std::uint64_t changes() const { return changes_; }  // including those that are not kept
  double last() const { return kept_.empty() ? 1 : kept_.back().scale; }

 private:
  std::vector<LossScaleChange> kept_;
  std::uint64_t changes_ = 0;
};

}  // namespace millrace
