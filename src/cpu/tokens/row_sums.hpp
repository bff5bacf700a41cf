// Sums and the maximum of a row of float32, for layer norm and attention. Each sum is accumulated in 16 partial sums,
// in the widest registers that this processor has and oneDNN's settings permit.
#pragma once
#include <cstdint>

namespace millrace::cpu {

// For the gradient of a norm: the sums of g = dy * gamma, and of g * (x - mean) * inverse.
struct NormProducts {
  float g, gx;
};

constexpr std::int64_t row_sum_lanes = 16;

struct RowSums {
  float (*sum)(const float* x, std::int64_t count);
  float (*squares)(const float* x, float shift, std::int64_t count);  // of x - shift
  float (*dot)(const float* a, const float* b, std::int64_t count);
  NormProducts (*norm_products)(const float* dy, const float* x, const float* gamma, float mean, float inverse,
                                std::int64_t count);
  float (*largest)(const float* x, std::int64_t count);  // count: a multiple of row_sum_lanes, and not 0
};
const RowSums& row_sums();

}  // namespace millrace::cpu
