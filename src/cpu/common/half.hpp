// The two 16-bit formats on the CPU: element access for templated loops, conversion on all threads, and an Op that
// emulates 16 bits with a float32 op. oneDNN computes in bf16 only on processors with AVX-512 or AMX. f16 is always
// emulated.
#pragma once
#include <array>
#include <memory>

#include "millrace/base/dispatch_dtype.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/half.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cpu {

// Element access with the same spelling for float, bf16 and f16. Loops over bf16 are vectorised, loops over f16 are
// not; use to_float() to convert many f16 values.
inline float load(const float* p) { return *p; }
inline float load(const bf16* p) { return float(*p); }
inline float load(const f16* p) { return float(*p); }
inline void store(float* p, float value) { *p = value; }
inline void store(bf16* p, float value) { *p = bf16(value); }
inline void store(f16* p, float value) { *p = f16(value); }

// Calls body(T{}) with T = float, bf16 or f16. Example:
//   dispatch_dtype(spec.dtype, [&](auto zero) { using T = decltype(zero); ... });
// Throws Error(config) for other types.
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, const Body& body) {
  return dispatch_compute_dtype(dtype, "the CPU", body);
}

// Converts `count` elements between any two of f32, bf16 and f16, on all threads.
void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count);

// The number of elements of each 16-bit tensor of an op (0: the tensor is absent or always float32), and what its
// backward reads.
struct HalfTensors {
  std::array<std::int64_t, OpArgs::max_src> src{};
  std::int64_t dst = 0;
  std::array<std::int64_t, OpArgs::max_weight> weight{};
  bool keeps_src = false, keeps_dst = false, infer = false;
};
// Makes a 16-bit op from the float32 op of the same Spec. Arithmetic is float32; results are rounded to 16 bits when
// they are stored. Activations are converted in the workspace. Weights are converted by repack() into packed_weights.
std::unique_ptr<Op> emulate_half(DType half, std::unique_ptr<Op> float_op, const HalfTensors&);

}  // namespace millrace::cpu
