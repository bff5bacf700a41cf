#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/activation_functions.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

template <class Kind, class T>
struct Activate {
  T* dst;
  const T* src;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n];
    load(x, src + i);
    for (int k = 0; k < n; ++k) x[k] = Kind::template value<T>(x[k]);
    store(dst + i, x);
  }
};

template <class Kind, class T>
struct ActivationGradient {
  T* diff_src;
  const T *diff_dst, *kept;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float dy[n], v[n];
    load(dy, diff_dst + i);
    load(v, kept + i);
    for (int k = 0; k < n; ++k) dy[k] = Kind::template gradient<T>(dy[k], v[k]);
    store(diff_src + i, dy);
  }
};

template <class Kind>
class ActivationOp : public Op {
 public:
  ActivationOp(const ActivationSpec& s, const LaunchContext& context)
      : context_(context), count_(s.src.count()), dtype_(s.dtype) {
    dispatch_dtype(dtype_, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      const Activate<Kind, T> body{args.dst.as<T>(), args.src[0].as<T>()};
      vectorized_for_each<n>(context_, count_, aligned(body.dst, n) && aligned(body.src, n), body);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      const Tensor& kept = backward_reads_src(Kind::kind) ? args.src[0] : args.dst;
      const ActivationGradient<Kind, T> body{args.diff_src[0].as<T>(), args.diff_dst.as<T>(), kept.as<T>()};
      const bool wide = aligned(body.diff_src, n) && aligned(body.diff_dst, n) && aligned(body.kept, n);
      vectorized_for_each<n>(context_, count_, wide, body);
    });
  }

 private:
  LaunchContext context_;
  std::int64_t count_;
  DType dtype_;
};

class Identity : public Op {
 public:
  Identity(const ActivationSpec& s, const LaunchContext& context)
      : context_(context), count_(s.src.count()), dtype_(s.dtype) {
    dispatch_dtype(dtype_, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override { copy(args.dst, args.src[0]); }
  void backward(const OpArgs& args) override { copy(args.diff_src[0], args.diff_dst); }

 private:
  void copy(const Tensor& to, const Tensor& from) const {  // they may be the same
    if (to && to.data != from.data) convert(context_, to.data, dtype_, from.data, dtype_, count_);
  }
  LaunchContext context_;
  std::int64_t count_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec, const LaunchContext& context) {
  if (spec.kind == Activation::none) return std::make_unique<Identity>(spec, context);
  return with_activation(spec.kind, [&](auto kind) -> std::unique_ptr<Op> {
    return std::make_unique<ActivationOp<decltype(kind)>>(spec, context);
  });
}

}  // namespace millrace::cuda
