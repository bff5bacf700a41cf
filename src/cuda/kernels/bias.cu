#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/conv_kernels.hpp"

namespace millrace::cuda {
namespace {

template <class T, int n>
struct AddBias {  // index i is a group of n channels
  T* values;
  const float* bias;
  std::uint32_t groups;  // in a row
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    float x[n];
    load(x, values + i * n);
    const float* b = bias + std::uint32_t(i) % groups * n;
    for (int k = 0; k < n; ++k) x[k] += b[k];
    store(values + i * n, x);
  }
};

}  // namespace

void add_bias(const LaunchContext& context, void* values, DType dtype, const float* bias, std::int64_t rows,
              std::int64_t channels) {
  dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_size<T>;
    const bool packs = channels % n == 0;
    const std::int64_t groups = packs ? channels / n : channels;
    MR_CHECK(rows * groups <= std::int64_t(UINT32_MAX));
    if (packs)
      for_each(context, rows * groups, AddBias<T, n>{static_cast<T*>(values), bias, std::uint32_t(groups)});
    else
      for_each(context, rows * groups, AddBias<T, 1>{static_cast<T*>(values), bias, std::uint32_t(groups)});
  });
}

}  // namespace millrace::cuda
