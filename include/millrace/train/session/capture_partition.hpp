// Grouping: which micro-batches of a step are recorded together, and in which slots of the loader's they lie on the
// device. A function of the step alone, so that all ranks record the same sums together: NCCL wants each replay to be
// of one capture that all ranks made together.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace {

class CapturePartition {
 public:
  // most: micro-batches of a recording. accumulation: of a rank in a step, at most. varies: shares change from step to
  // step (train.balance), so that a step and the next have slots of their own, whatever numbers they have.
  CapturePartition(int most, int accumulation, bool varies = false);
  int largest() const { return largest_; }            // micro-batches of a group, at most
  int device_slots() const { return device_slots_; }  // the copy of the next one never waits for the newest use
  // Of a rank's step of so many micro-batches. One for none: who has no rows takes part in the sums.
  int groups(int micro_batches) const;
  // The first micro-batch of a group; of group groups(), the end. Sizes differ by one at most.
  int begin(int micro_batches, int group) const;
  // Where the first batch of a step (its number in the run) lies; the others follow in the ring. micro_batches: the
  // most that any rank has in it.
  std::size_t first_slot(std::int64_t step, int micro_batches) const;

 private:
  int largest_, device_slots_, odd_ = 0;  // odd: where steps of odd numbers begin, if they vary
};

}  // namespace millrace
