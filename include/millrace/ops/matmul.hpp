// What attention consists of where a network writes it out: products of matrices that are both values, and softmax.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

// dst[b] = A[b] B[b], in row-major order, with sums in float32.
//
//   src[0]   A: (batch, m, k), or (batch, k, m) if transpose_a
//   src[1]   B: (batch, k, n), or (batch, n, k) if transpose_b
//   dst      (batch, m, n), with the extents `to`
//
// Each gradient is written only if it is requested.
struct BatchedMatmulSpec {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  Shape to;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return to; }
  double flops() const { return 2.0 * double(batch) * double(m) * double(n) * double(k); }
  // The products that compute the gradients of the sources.
  BatchedMatmulSpec of_a() const;  // of diff_dst and B; of B and diff_dst if transpose_a
  BatchedMatmulSpec of_b() const;  // of A and diff_dst; of diff_dst and A if transpose_b
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// Softmax over the last axis: dst = exp(src[0] - max) / sum of exp(src[0] - max).
struct SoftmaxSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  std::int64_t channels() const { return src[-1]; }
  std::int64_t positions() const { return src.count() / src[-1]; }
  static constexpr bool keeps_src = false, keeps_dst = true;
};

}  // namespace millrace
