#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/dnn/cublas.hpp"

namespace millrace::cuda {
namespace {

template <class T>
struct FillRandom {
  T* values;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    unsigned x = unsigned(i) * 2654435761u + 12345u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    values[i] = narrow<T>(float(int(x)) * (1.0f / 2147483648.0f));
  }
};

}  // namespace

void fill_random(const LaunchContext& context, void* values, DType dtype, std::int64_t count) {
  dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each(context, count, FillRandom<T>{static_cast<T*>(values)});
  });
}

}  // namespace millrace::cuda
