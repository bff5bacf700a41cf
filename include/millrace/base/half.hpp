// The 16-bit floating formats in bulk, at the speed of memory, on the calling thread. Rounding as bf16's and f16's own
// constructors: to nearest, ties to even; NaN stays NaN.
#pragma once
#include <cstdint>

#include "millrace/base/types.hpp"

namespace millrace {

// src, or dst, holds `count` values of `dtype`: bf16, f16, or f32 (a copy). The ranges must not overlap.
void to_float(float* dst, const void* src, DType dtype, std::int64_t count);
void from_float(void* dst, DType dtype, const float* src, std::int64_t count);

}  // namespace millrace
