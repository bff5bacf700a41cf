// Conversion of arrays between float32 and the 16-bit floating-point formats, at memory speed, on the calling thread.
// Values are rounded as by the constructors of bf16 and f16: to nearest, ties to even. NaN stays NaN.
#pragma once
#include <cstdint>

#include "millrace/base/types.hpp"

namespace millrace {

// The array that is not float32 holds `count` values of type `dtype`: bf16, f16, or f32 (then the values are copied).
// The arrays must not overlap.
void to_float(float* dst, const void* src, DType dtype, std::int64_t count);
void from_float(void* dst, DType dtype, const float* src, std::int64_t count);

}  // namespace millrace
