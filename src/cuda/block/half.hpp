// Element types inside kernels. Kernels compute in float: widen() converts an element to float, narrow() rounds a float
// to an element. A Pack is a vector of elements that one wide instruction loads or stores.
#pragma once
#include "cuda/block/block.hpp"
#include "millrace/base/types.hpp"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace millrace::cuda {

MR_DEVICE_INLINE float widen(float value) { return value; }
MR_DEVICE_INLINE float widen(bf16 value) {
#ifdef __CUDACC__
  return __uint_as_float(unsigned(value.bits) << 16);
#else
  return float(value);
#endif
}
MR_DEVICE_INLINE float widen(f16 value) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(value.bits));
#else
  return float(value);
#endif
}

// Rounds to nearest, ties to even.
template <class T>
MR_DEVICE_INLINE T narrow(float value);
template <>
MR_DEVICE_INLINE float narrow<float>(float value) {
  return value;
}
template <>
MR_DEVICE_INLINE bf16 narrow<bf16>(float value) {
#ifdef __CUDACC__
  bf16 out;
  out.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return out;
#else
  return bf16(value);
#endif
}
template <>
MR_DEVICE_INLINE f16 narrow<f16>(float value) {
#ifdef __CUDACC__
  f16 out;
  out.bits = __half_as_ushort(__float2half_rn(value));
  return out;
#else
  return f16(value);
#endif
}

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T v[n];
};
// The number of elements in one 16-byte access.
template <class T>
constexpr int pack_size = 16 / int(sizeof(T));

template <int n, class T>
MR_DEVICE_INLINE void load(float (&to)[n], const T* from) {  // from: aligned to the size of n elements
  const Pack<T, n> pack = *reinterpret_cast<const Pack<T, n>*>(from);
  for (int i = 0; i < n; ++i) to[i] = widen(pack.v[i]);
}
template <int n, class T>
MR_DEVICE_INLINE void store_pack(T* to, const Pack<T, n>& pack) {  // to: aligned to the size of n elements
#ifdef __CUDACC__
  // A plain assignment becomes several narrow stores where the elements are computed one by one, as in batch norm.
  // tests/cuda/ptx_test.py looks for the wide stores.
  if constexpr (sizeof pack % sizeof(uint4) == 0) {
    union {
      Pack<T, n> pack;
      uint4 words[sizeof(Pack<T, n>) / sizeof(uint4)];
    } bits{pack};
    for (std::size_t i = 0; i < sizeof pack / sizeof(uint4); ++i)
      __stwb(reinterpret_cast<uint4*>(to) + i, bits.words[i]);
    return;
  }
#endif
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}
template <int n, class T>
MR_DEVICE_INLINE void store(T* to, const float (&from)[n]) {
  Pack<T, n> pack;
  for (int i = 0; i < n; ++i) pack.v[i] = narrow<T>(from[i]);
  store_pack(to, pack);
}

}  // namespace millrace::cuda
