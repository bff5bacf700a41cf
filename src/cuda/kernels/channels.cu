// Copies rows to rows of another width. Images with few channels get padding channels for cuDNN engines that read whole
// vectors, and weight gradients lose them again.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/conv_kernels.hpp"

namespace millrace::cuda {
namespace {

template <class To, class From, int n>
struct CopyChannels {  // index i is a group of n channels of dst
  To* dst;
  const From* src;
  std::int64_t dst_groups, src_channels;
  bool add;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t row = i / dst_groups, first = (i - row * dst_groups) * n;
    float x[n];
    for (int k = 0; k < n; ++k) x[k] = first + k < src_channels ? widen(src[row * src_channels + first + k]) : 0.0f;
    if (add)
      for (int k = 0; k < n; ++k) x[k] += widen(dst[i * n + k]);
    store(dst + i * n, x);
  }
};

template <class To, class From>
void copy(const LaunchContext& context, To* dst, std::int64_t dst_channels, const From* src, std::int64_t src_channels,
          std::int64_t rows, bool add) {
  if (dst_channels % 4 == 0)
    for_each(context, rows * dst_channels / 4,
             CopyChannels<To, From, 4>{dst, src, dst_channels / 4, src_channels, add});
  else
    for_each(context, rows * dst_channels, CopyChannels<To, From, 1>{dst, src, dst_channels, src_channels, add});
}

}  // namespace

void copy_channels(const LaunchContext& context, const Channels& dst, const Channels& src, std::int64_t rows,
                   GradMode mode) {
  MR_CHECK(dst.dtype == DType::f32 || (dst.dtype == src.dtype && mode == GradMode::write));
  dispatch_dtype(src.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = static_cast<const T*>(src.data);
    if (dst.dtype == DType::f32)
      copy(context, static_cast<float*>(dst.data), dst.channels, from, src.channels, rows, mode == GradMode::add);
    else
      copy(context, static_cast<T*>(dst.data), dst.channels, from, src.channels, rows, false);
  });
}

}  // namespace millrace::cuda
