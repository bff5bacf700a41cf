// What a loss knows of one row, or of a part of one, and how these become the sums of the StepState: by one block, in
// an order that depends on their count alone.
#pragma once
#include "cuda/runtime/block.hpp"
#include "millrace/device/step_state.hpp"

namespace millrace::cuda {

struct RowLoss {
  double loss = 0;
  std::uint32_t counted = 0;
  std::uint16_t top1 = 0, top5 = 0;
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
      counted += row.counted, top1 += row.top1, top5 += row.top5;
    }
    loss = block.sum(loss);
    counted = block.sum(counted), top1 = block.sum(top1), top5 = block.sum(top5);
    if (block.thread() != 0) return;
    state->loss_sum += loss;
    state->counted += counted, state->top1 += top1, state->top5 += top5;
  }
};

inline void add_row_losses(const LaunchContext& context, StepState* state, const RowLoss* rows, std::int64_t count) {
  launch(context.stream, 1, 256, 0, AddRowLosses{state, rows, count});
}

// Threads for a block that has `items` things to do, at most `most`: whole warps, equally busy.
inline int even_threads(std::int64_t items, int most) {
  const std::int64_t rounds = (items + most - 1) / most;
  const std::int64_t threads = rounds ? (items + rounds - 1) / rounds : 1;
  return int((threads + 31) / 32 * 32);
}

}  // namespace millrace::cuda
