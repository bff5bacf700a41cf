#include <cmath>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// The cumulative distribution function of the normal distribution. For float32 it uses erfc, which is exact in the
// lower tail. For 16-bit types that precision would be lost, so it uses erf, which is faster.
template <class T>
MR_DEVICE_INLINE float normal_cumulative(float x) {
  constexpr float root_half = 0.70710678f;
  if constexpr (sizeof(T) == 4)
    return 0.5f * erfcf(-root_half * x);
  else
    return 0.5f + 0.5f * erff(root_half * x);
}

// Each activation has value(x) and gradient(diff_dst, kept), where kept is x if backward_reads_src(kind), and otherwise
// the result y. NaNs are passed on.
struct Relu {
  static constexpr Activation kind = Activation::relu;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x < 0 ? 0 : x;
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float y) {
    return y <= 0 ? 0 : dy;
  }
};
struct Tanh {
  static constexpr Activation kind = Activation::tanh;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return tanhf(x);
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float y) {
    return dy * (1 - y * y);
  }
};
// x * S(x), where S is a distribution function that approximates the normal one. |x| is limited to 40, where S has
// reached 0 or 1 in float32 long before, so that no x overflows.
struct GeluTanh {
  static constexpr Activation kind = Activation::gelu_tanh;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x * distribution(x).cumulative;
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float x) {
    const Distribution s = distribution(x);
    return dy * (s.cumulative + x * s.density);
  }

 private:
  struct Distribution {
    float cumulative, density;
  };
  static MR_DEVICE_INLINE Distribution distribution(float x) {
    constexpr float scale = 0.79788456f, cube = 0.044715f;  // sqrt(2 / pi)
    const float size = fabsf(x), a = size > 40 ? 40 : size, square = cube * a * a;
    const float t = expf(-2 * scale * a * (1 + square)), part = 1 / (1 + t);
    return {(x < 0 ? t : 1) * part, 2 * scale * (1 + 3 * square) * t * part * part};
  }
};
struct Gelu {
  static constexpr Activation kind = Activation::gelu;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x * normal_cumulative<T>(x);
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float x) {
    return dy * (normal_cumulative<T>(x) + x * (0.39894228f * expf(-0.5f * x * x)));
  }
};

MR_DEVICE_INLINE float logistic(float x) {  // from the exponential of a number that is at most 0
  const float t = expf(-fabsf(x));
  return (x < 0 ? t : 1) / (1 + t);
}
struct Silu {
  static constexpr Activation kind = Activation::silu;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x * logistic(x);
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float x) {
    const float s = logistic(x);
    return dy * s * (1 + x * (1 - s));
  }
};
struct Sigmoid {
  static constexpr Activation kind = Activation::sigmoid;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return logistic(x);
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float y) {
    return dy * y * (1 - y);
  }
};
struct LeakyRelu {
  static constexpr Activation kind = Activation::leaky_relu;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x < 0 ? 0.01f * x : x;
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float y) {
    return y <= 0 ? 0.01f * dy : dy;
  }
};
struct Elu {
  static constexpr Activation kind = Activation::elu;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x < 0 ? expm1f(x) : x;
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float y) {
    return dy * (1 + (y < 0 ? y : 0));
  }
};
struct Hardswish {
  static constexpr Activation kind = Activation::hardswish;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x <= -3 ? 0 : x >= 3 ? x : x * ((x + 3) * (1.0f / 6));
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float x) {
    return dy * (x < -3 ? 0 : x > 3 ? 1 : x * (1.0f / 3) + 0.5f);
  }
};

template <class Kind, class T>
struct Forward {
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
struct Backward {
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
      const Forward<Kind, T> body{args.dst.as<T>(), args.src[0].as<T>()};
      vectorized_for_each<n>(context_, count_, aligned(body.dst, n) && aligned(body.src, n), body);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      const Tensor& kept = backward_reads_src(Kind::kind) ? args.src[0] : args.dst;
      const Backward<Kind, T> body{args.diff_src[0].as<T>(), args.diff_dst.as<T>(), kept.as<T>()};
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
  void forward(const OpArgs& args) override {
    convert(context_, args.dst.data, dtype_, args.src[0].data, dtype_, count_);
  }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) convert(context_, args.diff_src[0].data, dtype_, args.diff_dst.data, dtype_, count_);
  }

 private:
  LaunchContext context_;
  std::int64_t count_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec, const LaunchContext& context) {
  switch (spec.kind) {
    case Activation::relu:
      return std::make_unique<ActivationOp<Relu>>(spec, context);
    case Activation::tanh:
      return std::make_unique<ActivationOp<Tanh>>(spec, context);
    case Activation::gelu:
      return std::make_unique<ActivationOp<Gelu>>(spec, context);
    case Activation::gelu_tanh:
      return std::make_unique<ActivationOp<GeluTanh>>(spec, context);
    case Activation::silu:
      return std::make_unique<ActivationOp<Silu>>(spec, context);
    case Activation::sigmoid:
      return std::make_unique<ActivationOp<Sigmoid>>(spec, context);
    case Activation::leaky_relu:
      return std::make_unique<ActivationOp<LeakyRelu>>(spec, context);
    case Activation::elu:
      return std::make_unique<ActivationOp<Elu>>(spec, context);
    case Activation::hardswish:
      return std::make_unique<ActivationOp<Hardswish>>(spec, context);
    case Activation::none:
      break;
  }
  return std::make_unique<Identity>(spec, context);
}

}  // namespace millrace::cuda
