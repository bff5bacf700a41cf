#include "millrace/train/session/capture_partition.hpp"

#include <algorithm>

namespace millrace {
namespace {

int pieces(int whole, int piece) { return (whole + piece - 1) / piece; }

}  // namespace

CapturePartition::CapturePartition(int most, int accumulation, bool varies) {
  accumulation = std::max(1, accumulation);
  largest_ = pieces(accumulation, pieces(accumulation, most));
  if (varies) {
    odd_ = accumulation;
    device_slots_ = 2 * accumulation;
    return;
  }
  device_slots_ = std::max(2, largest_);
  // Steps with several micro-batches start in slot 0, so a full step must not end there: its last batch and the first
  // batch of the next step would share the slot.
  while (accumulation > 1 && (accumulation - 1) % device_slots_ == 0) ++device_slots_;
}

int CapturePartition::groups(int micro_batches) const { return std::max(1, pieces(micro_batches, largest_)); }

int CapturePartition::begin(int micro_batches, int group) const {
  return micro_batches * group / groups(micro_batches);
}

std::size_t CapturePartition::first_slot(std::int64_t step, int micro_batches) const {
  if (odd_ > 0) return std::size_t(step % 2 * odd_);
  return micro_batches > 1 ? 0 : std::size_t(step % 2);
}

}  // namespace millrace
