// What the kernels for one time step of recurrent layers share.
#pragma once
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {

// recurrent_forward() and recurrent_backward() without gates. In plain_recurrent.cu.
void plain_recurrent_forward(const LaunchContext&, const RecurrentSpec&, const RecurrentForward&);
void plain_recurrent_backward(const LaunchContext&, const RecurrentSpec&, const RecurrentBackward&);

constexpr int unit_pack = 4;  // float32 is the type of most arrays

template <int n>
MR_DEVICE_INLINE void load_or_zero(float (&to)[n], const float* from) {
  if (from)
    load(to, from);
  else
    for (int k = 0; k < n; ++k) to[k] = 0;
}

// store(), with one access of 8 bytes for four elements of 16 bits.
template <class T, int n>
MR_DEVICE_INLINE void store_units(void* array, std::int64_t at, const float (&values)[n]) {
  T* const to = static_cast<T*>(array) + at;
#ifdef __CUDACC__
  if constexpr (sizeof(T) * n == sizeof(uint2)) {
    Pack<T, n> pack;
    for (int k = 0; k < n; ++k) pack.v[k] = narrow<T>(values[k]);
    union {
      Pack<T, n> pack;
      uint2 words;
    } bits{pack};
    __stwb(reinterpret_cast<uint2*>(to), bits.words);
    return;
  }
#endif
  store(to, values);
}

// Runs Kernel<type, units of a pack>{a, packs, kind}.
template <template <class, int> class Kernel, class Arguments>
void run_gates(const LaunchContext& context, const RecurrentSpec& s, const Arguments& a, bool kind) {
  dispatch_dtype(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (s.units % unit_pack == 0)
      for_each(context, a.rows * s.units / unit_pack, Kernel<T, unit_pack>{a, Divider(s.units / unit_pack), kind});
    else
      for_each(context, a.rows * s.units, Kernel<T, 1>{a, Divider(s.units), kind});
  });
}

}  // namespace millrace::cuda
