// dst = src[0] + src[1]. The gradients are copies of diff_dst, unless they share its memory.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

template <class T>
struct AddElements {
  T* dst;
  const T *a, *b;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n], y[n];
    load(x, a + i);
    load(y, b + i);
    for (int k = 0; k < n; ++k) x[k] += y[k];
    store(dst + i, x);
  }
};

// Both gradients are copies, so diff_dst is read once.
template <class T>
struct CopyTwice {
  T *a, *b;  // null: not requested
  const T* src;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    const Pack<T, n> pack = *reinterpret_cast<const Pack<T, n>*>(src + i);
    if (a) store_pack(a + i, pack);
    if (b) store_pack(b + i, pack);
  }
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
      constexpr int n = pack_size<T>;
      vectorized_for_each<n>(context_, count_, aligned(dst, n) && aligned(a, n) && aligned(b, n),
                             AddElements<T>{dst, a, b});
    });
  }

  void backward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      const auto target = [&](const Tensor& diff) {
        return diff && diff.data != args.diff_dst.data ? diff.as<T>() : nullptr;
      };
      T *const a = target(args.diff_src[0]), *const b = target(args.diff_src[1]);
      const T* const src = args.diff_dst.as<T>();
      if (!a && !b) return;
      constexpr int n = pack_size<T>;
      vectorized_for_each<n>(context_, count_, aligned(a, n) && aligned(b, n) && aligned(src, n),
                             CopyTwice<T>{a, b, src});
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
