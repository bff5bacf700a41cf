// Sums over a row of float32, and its largest element, with the registers of this processor. A sum has 16 parts, which
// are added at the end.
#pragma once
#include <cstdint>

namespace millrace::cpu {

// The sums of g = dy * gamma, and of g * (x - mean) * inverse.
struct NormProducts {
  float g, gx;
};

struct RowSums {
  float (*sum)(const float* x, std::int64_t count);
  float (*squares)(const float* x, float shift, std::int64_t count);  // of x - shift
  float (*dot)(const float* a, const float* b, std::int64_t count);
  NormProducts (*norm_products)(const float* dy, const float* x, const float* gamma, float mean, float inverse,
                                std::int64_t count);
  float (*largest)(const float* x, std::int64_t count);  // count: a multiple of 16, and not 0
};
const RowSums& row_sums();

}  // namespace millrace::cpu
