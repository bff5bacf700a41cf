// dst = src[0] + src[1]; both gradients are copies of diff_dst.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

template <class T>
struct AddPacks {  // index i is a pack
  T* dst;
  const T *a, *b;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    constexpr int n = pack_size<T>;
    float x[n], y[n];
    load(x, a + i * n);
    load(y, b + i * n);
    for (int k = 0; k < n; ++k) x[k] += y[k];
    store(dst + i * n, x);
  }
};

template <class T>
struct AddOne {
  T* dst;
  const T *a, *b;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const { dst[i] = narrow<T>(widen(a[i]) + widen(b[i])); }
};

template <class T>
struct Copy {
  T* dst;
  const T* src;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const { dst[i] = src[i]; }
};

class Add : public Op {
 public:
  Add(const AddSpec& s, const LaunchContext& context) : context_(context), count_(s.src.count()), dtype_(s.dtype) {}
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      T* dst = args.dst.as<T>();
      const T *a = args.src[0].as<T>(), *b = args.src[1].as<T>();
      const std::int64_t whole = count_ / pack_size<T>, rest = whole * pack_size<T>;
      for_each(context_, whole, AddPacks<T>{dst, a, b});
      for_each(context_, count_ - rest, AddOne<T>{dst + rest, a + rest, b + rest});
    });
  }

  void backward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      for (const Tensor& diff : {args.diff_src[0], args.diff_src[1]})
        if (diff) for_each(context_, count_, Copy<T>{diff.as<T>(), args.diff_dst.as<T>()});
    });
  }

 private:
  LaunchContext context_;
  std::int64_t count_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Op> make_add(const AddSpec& spec, const LaunchContext& context) {
  return std::make_unique<Add>(spec, context);
}

}  // namespace millrace::cuda
