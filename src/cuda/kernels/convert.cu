// Conversion between element types; a plain copy if the types are equal.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

template <class To, class From>
struct Convert {
  To* dst;
  const From* src;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n];
    load(x, src + i);
    store(dst + i, x);
  }
};

template <class T>
struct Convert<T, T> {  // an exact copy, which keeps the bits of NaNs
  T* dst;
  const T* src;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    *reinterpret_cast<Pack<T, n>*>(dst + i) = *reinterpret_cast<const Pack<T, n>*>(src + i);
  }
};

template <class From>
struct AddConverted {
  float* dst;
  const From* src;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n], sum[n];
    load(x, src + i);
    load(sum, dst + i);
    for (int k = 0; k < n; ++k) sum[k] += x[k];
    store(dst + i, sum);
  }
};

}  // namespace

void convert(const LaunchContext& context, void* dst, DType dst_type, const void* src, DType src_type,
             std::int64_t count) {
  if (dst == src && dst_type == src_type) return;
  dispatch_dtype(dst_type, [&](auto to) {
    dispatch_dtype(src_type, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      constexpr int n = std::min(pack_size<To>, pack_size<From>);
      const Convert<To, From> body{static_cast<To*>(dst), static_cast<const From*>(src)};
      vectorized_for_each<n>(context, count, aligned(body.dst, n) && aligned(body.src, n), body);
    });
  });
}

void accumulate(const LaunchContext& context, float* dst, const void* src, DType src_type, std::int64_t count,
                GradMode mode) {
  if (mode == GradMode::write) return convert(context, dst, DType::f32, src, src_type, count);
  dispatch_dtype(src_type, [&](auto from) {
    using From = decltype(from);
    constexpr int n = pack_size<float>;
    const AddConverted<From> body{dst, static_cast<const From*>(src)};
    vectorized_for_each<n>(context, count, aligned(body.dst, n) && aligned(body.src, n), body);
  });
}

}  // namespace millrace::cuda
