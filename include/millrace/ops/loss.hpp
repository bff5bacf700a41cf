// Losses, the last operation of a network. In Mode::train, forward() computes the loss and writes diff_src[0] in the
// same pass; backward() does nothing. The gradient is that of loss_scale * row_weight * (sum over rows). So the plain
// sum of the gradients over micro-batches and ranks is the gradient of the mean over the global batch, times the loss
// scale. The results are added to loss_sum, top1, top5 and counted of the StepState. The order of these sums depends
// only on the shape, so they are bitwise reproducible.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

// Softmax cross-entropy at every position of a row. src[0]: logits, (N, ..., classes) in `dtype`. src[1]: labels,
// (N, ...) int32 in [0, classes). A position weighs row_weight / (positions of a row). Positions with a negative label
// are ignored; loss_sum, top1, top5 and counted count positions. Label smoothing s mixes the one-hot target with the
// uniform distribution, as in PyTorch: (1 - s) * onehot + s / classes.
struct CrossEntropySpec {
  Shape src;
  float label_smoothing = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  std::int64_t classes() const { return src[-1]; }
  std::int64_t positions() const { return src.count() / src[-1]; }  // of all rows
  std::int64_t positions_of_row() const { return src.row_count() / src[-1]; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// Mean squared error over the features of a row, summed over rows. src[0]: predictions, (N, F) in `dtype`. src[1]:
// targets, (N, F) float32.
struct MseSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
