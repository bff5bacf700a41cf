#include "cpu/common/tile.hpp"

namespace millrace::cpu {

MR_TARGET_CLONES void add(float* dst, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dst[i] = a[i] + b[i];
}

MR_TARGET_CLONES void multiply(float* dst, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dst[i] = a[i] * b[i];
}

MR_TARGET_CLONES void add_products(float* __restrict sum, const float* __restrict a, const float* __restrict b,
                                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += a[i] * b[i];
}

namespace {

// Columns [begin, end).
template <class T>
__attribute__((always_inline)) inline void add_rows(float* __restrict sum, const T* __restrict rows, const Shape& shape,
                                                    std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = shape[1];
  for (std::int64_t r = 0; r < shape[0]; ++r, rows += columns)
    for (std::int64_t c = begin; c < end; ++c) sum[c] += load(rows + c);
}
MR_TARGET_CLONES void add_float_rows(float* sum, const float* rows, const Shape& shape, std::int64_t begin,
                                     std::int64_t end) {
  add_rows(sum, rows, shape, begin, end);
}
MR_TARGET_CLONES void add_bf16_rows(float* sum, const bf16* rows, const Shape& shape, std::int64_t begin,
                                    std::int64_t end) {
  add_rows(sum, rows, shape, begin, end);
}

}  // namespace

void sum_columns(float* sum, const Tensor& matrix, GradMode mode) {
  parallel_ranges(matrix.shape[1], 16, [&](std::int64_t begin, std::int64_t end) {
    if (mode == GradMode::write) std::fill(sum + begin, sum + end, 0.0f);
    if (matrix.dtype == DType::f32)
      add_float_rows(sum, matrix.as<float>(), matrix.shape, begin, end);
    else
      add_bf16_rows(sum, matrix.as<bf16>(), matrix.shape, begin, end);
  });
}

}  // namespace millrace::cpu
