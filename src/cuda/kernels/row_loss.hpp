// The loss of one row, or of a part of a row, and the kernel that adds these losses to the LossSums. One block adds
// them, in an order that depends on their number only.
#pragma once
#include <cmath>

#include "cuda/block/block.hpp"
#include "millrace/device/step_state.hpp"

namespace millrace::cuda {

struct RowLoss {
  double loss = 0, weight = 0;
  std::uint32_t counted = 0;         // what counts in the accuracy: 1 for a row that has a label
  std::uint16_t top1 = 0, top5 = 0;  // of them: the label is the best class, or among the best five
};

struct AddRowLosses {
  LossSums* to;
  const RowLoss* rows;
  std::int64_t count;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    double loss = 0, weight = 0;
    std::uint32_t counted = 0, top1 = 0, top5 = 0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads()) {
      const RowLoss row = rows[i];
      loss += row.loss;
      weight += row.weight;
      counted += row.counted;
      top1 += row.top1;
      top5 += row.top5;
    }
    loss = block.sum(loss);
    weight = block.sum(weight);
    counted = block.sum(counted);
    top1 = block.sum(top1);
    top5 = block.sum(top5);
    if (block.thread() != 0) return;
    to->sum += loss;
    to->weight += weight;
    to->counted += counted;
    to->top1 += top1;
    to->top5 += top5;
  }
};

// What a part of a row adds to the metrics of a regression: see PointwiseLossSpec.
struct MetricSums {
  double v[4] = {};
  MR_DEVICE_INLINE void add(float x, float y, double origin) {
    const double d = double(x) - double(y), t = double(y) - origin;
    v[0] += fabs(d);
    v[1] += d * d;
    v[2] += t;
    v[3] += t * t;
  }
};

struct AddMetricSums {
  double* to;
  const MetricSums* parts;
  std::int64_t count;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    for (int k = 0; k < 4; ++k) {
      double sum = 0;
      for (std::int64_t i = block.thread(); i < count; i += block.threads()) sum += parts[i].v[k];
      sum = block.sum(sum);
      if (block.thread() == 0) to[k] += sum;
    }
  }
};

inline void add_row_losses(const LaunchContext& context, LossSums* to, const RowLoss* rows, std::int64_t count) {
  launch(context, 1, 256, 0, AddRowLosses{to, rows, count});
}

// The number of threads for a block with so many items, at most max_threads: whole warps, and equal work for all of
// them.
inline int even_threads(std::int64_t items, int max_threads) {
  const std::int64_t rounds = (items + max_threads - 1) / max_threads;
  const std::int64_t threads = rounds ? (items + rounds - 1) / rounds : 1;
  return int((threads + 31) / 32 * 32);
}

}  // namespace millrace::cuda
