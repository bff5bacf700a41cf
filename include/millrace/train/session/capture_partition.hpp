// CapturePartition: divides the micro-batches of a step into groups. Each group is captured as one CUDA graph. It also
// chooses the device slots of the loader in which the batches of a step lie, because a captured step contains their
// addresses.
//
// The result depends only on the step, so all ranks capture the same all-reduces together. NCCL requires this: a
// collective that was captured must be replayed on all ranks, from captures that they made together.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace {

class CapturePartition {
 public:
  // most: the largest number of micro-batches in one captured group. accumulation: the largest number of micro-batches
  // of a rank in a step. varies: the number changes from step to step (train.balance); consecutive steps then use
  // different device slots, whatever their numbers of micro-batches are.
  CapturePartition(int most, int accumulation, bool varies = false);
  // The largest number of micro-batches in a group.
  int largest() const { return largest_; }
  // Device slots that the loader needs. Two consecutive batches of steps with `accumulation` micro-batches never use
  // the same slot. Otherwise, the copy of the next batch would wait until the step has consumed the newest one.
  int device_slots() const { return device_slots_; }
  // Number of groups of a rank that has this many micro-batches in the step. It is at least 1, because a rank without
  // rows still takes part in the all-reduces.
  int groups(int micro_batches) const;
  // The first micro-batch of a group; the end of the last group for group == groups(). Sizes differ by at most one.
  int begin(int micro_batches, int group) const;
  // The device slot of the first batch of a step; the others follow in the ring. step: number within the run, from 0.
  // micro_batches: the largest number that any rank has in this step.
  std::size_t first_slot(std::int64_t step, int micro_batches) const;

 private:
  int largest_ = 0;
  int device_slots_ = 0;
  int odd_ = 0;  // first device slot of the steps with odd numbers, if the number of micro-batches varies
};

}  // namespace millrace
