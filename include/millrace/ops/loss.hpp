// Losses end the network. In Mode::train forward() computes the loss *and* writes diff_src[0], in one pass over the
// logits; backward() does nothing. The gradient is that of loss_scale * row_weight * sum over rows, so that plain sums
// over micro-batches and ranks give the gradient of the mean over the global batch. Sums go to the StepState (loss_sum,
// top1, top5, counted), in an order that the shape alone decides: repeatable bits.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

// Softmax cross-entropy. src[0] logits (N, classes) in dtype; src[1] labels (N) int32 in [0, classes); a negative
// label: the row counts for nothing. Smoothing s mixes the one-hot target with the uniform one: (1 - s) * onehot + s /
// classes (PyTorch's definition).
struct CrossEntropySpec {
  Shape src;
  float label_smoothing = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  static constexpr bool keeps_src = true, keeps_dst = false;
};

// Mean squared error over the features of a row, summed over rows. src[0] (N, F) in dtype; src[1] target (N, F)
// float32.
struct MseSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
