// The loss of one row, or of a part of a row, and the kernel that adds these losses to the StepState. One block adds
// them, in an order that depends on their number only.
#pragma once
#include "cuda/block/block.hpp"
#include "millrace/device/step_state.hpp"

namespace millrace::cuda {

struct RowLoss {
  double loss = 0;
  std::uint32_t counted = 0;         // 1: the row has a label and counts in the means
  std::uint16_t top1 = 0, top5 = 0;  // 1: the label is the best class, or among the best five
};

struct AddRowLosses {
  StepState* state;
  const RowLoss* rows;
  std::int64_t count;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    double loss = 0;
    std::uint32_t counted = 0, top1 = 0, top5 = 0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads()) {
      const RowLoss row = rows[i];
      loss += row.loss;
      counted += row.counted;
      top1 += row.top1;
      top5 += row.top5;
    }
    loss = block.sum(loss);
    counted = block.sum(counted);
    top1 = block.sum(top1);
    top5 = block.sum(top5);
    if (block.thread() != 0) return;
    state->loss_sum += loss;
    state->counted += counted;
    state->top1 += top1;
    state->top5 += top5;
  }
};

inline void add_row_losses(const LaunchContext& context, StepState* state, const RowLoss* rows, std::int64_t count) {
  launch(context, 1, 256, 0, AddRowLosses{state, rows, count});
}

// The number of threads for a block with so many items, at most max_threads: whole warps, and equal work for all of
// them.
inline int even_threads(std::int64_t items, int max_threads) {
  const std::int64_t rounds = (items + max_threads - 1) / max_threads;
  const std::int64_t threads = rounds ? (items + rounds - 1) / rounds : 1;
  return int((threads + 31) / 32 * 32);
}

}  // namespace millrace::cuda
