// Blocks of tensors as floats for the arithmetic of batch_norm_kernels.hpp. float32 tensors are read and written
// directly; blocks of 16-bit tensors are converted in a tile.
#pragma once
#include "cpu/batch_norm_kernels.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu::batch_norm {

inline Lines read(const Tensor& t, const Block& b, float* tile) {
  if (t.dtype == DType::f32) return {t.as<float>() + b.begin, b.stride};
  if (b.contiguous())
    to_float(tile, element(t, b.begin), t.dtype, b.count());
  else
    for (std::int64_t r = 0; r < b.rows; ++r)
      to_float(tile + r * b.width, element(t, b.begin + r * b.stride), t.dtype, b.width);
  return {tile, b.width};
}

// Where to compute a result. If it is not requested, or has 16 bits, it is computed in the tile, which write() stores.
inline Target target(const Tensor& t, const Block& b, float* tile) {
  return t && t.dtype == DType::f32 ? Target{t.as<float>() + b.begin, b.stride} : Target{tile, b.width};
}

inline void write(const Tensor& t, const Block& b, Target from) {
  if (!t || t.dtype == DType::f32) return;
  if (b.contiguous())
    from_float(element(t, b.begin), t.dtype, from.data, b.count());
  else
    for (std::int64_t r = 0; r < b.rows; ++r)
      from_float(element(t, b.begin + r * b.stride), t.dtype, from.data + r * b.width, b.width);
}

}  // namespace millrace::cpu::batch_norm
