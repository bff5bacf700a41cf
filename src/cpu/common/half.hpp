// The two 16-bit formats on the CPU: element access for templated loops, conversion on all threads, and an Op that
// emulates 16 bits around a float32 op. oneDNN computes bf16 only with AVX-512; f16 is always emulated.
#pragma once
#include <array>
#include <memory>

#include "millrace/base/dispatch_dtype.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/half.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cpu {

// Element access: one spelling for float, bf16 and f16. The bf16 pair vectorises; f16 does not (to_float is for bulk).
inline float load(const float* p) { return *p; }
inline float load(const bf16* p) { return float(*p); }
inline float load(const f16* p) { return float(*p); }
inline void store(float* p, float value) { *p = value; }
inline void store(bf16* p, float value) { *p = bf16(value); }
inline void store(f16* p, float value) { *p = f16(value); }

// Calls body(T{}) with T float, bf16 or f16: with_type(spec.dtype, [&](auto zero) { using T = decltype(zero); ... }).
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, const Body& body) {
  return dispatch_compute_dtype(dtype, "the CPU", body);
}

// Any pair, on all threads.
void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count);

// Which tensors of an op are 16-bit, by element count (0: absent, or float32 anyway), and what its backward reads.
struct HalfTensors {
  std::array<std::int64_t, OpArgs::max_src> src{};
  std::int64_t dst = 0;
  std::array<std::int64_t, OpArgs::max_weight> weight{};
  bool keeps_src = false, keeps_dst = false, infer = false;
};
// A 16-bit op from the float32 op of the same Spec: values are rounded to 16 bits at tensor boundaries, arithmetic is
// float32. Activations are converted through the workspace, weights in refresh() into `derived`.
std::unique_ptr<Op> emulate_half(DType half, std::unique_ptr<Op> float_op, const HalfTensors&);

}  // namespace millrace::cpu
