// The activation functions on the device.
#pragma once
#include <cmath>

#include "cuda/block/half.hpp"
#include "millrace/base/error.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cuda {

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
struct Relu6 {
  static constexpr Activation kind = Activation::relu6;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x < 0 ? 0 : x > 6 ? 6 : x;
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float y) {
    return y <= 0 || y >= 6 ? 0 : dy;
  }
};
struct Hardsigmoid {
  static constexpr Activation kind = Activation::hardsigmoid;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) * (1.0f / 6);
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float x) {
    return x <= -3 || x >= 3 ? 0 : dy * (1.0f / 6);
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

// Calls body(Kind{}) with the struct of the activation, which is not `none`.
template <class Body>
auto with_activation(Activation kind, const Body& body) {
  switch (kind) {
    case Activation::relu:
      return body(Relu{});
    case Activation::tanh:
      return body(Tanh{});
    case Activation::gelu:
      return body(Gelu{});
    case Activation::gelu_tanh:
      return body(GeluTanh{});
    case Activation::silu:
      return body(Silu{});
    case Activation::sigmoid:
      return body(Sigmoid{});
    case Activation::leaky_relu:
      return body(LeakyRelu{});
    case Activation::elu:
      return body(Elu{});
    case Activation::relu6:
      return body(Relu6{});
    case Activation::hardsigmoid:
      return body(Hardsigmoid{});
    case Activation::hardswish:
      return body(Hardswish{});
    case Activation::none:
      break;
  }
  fail(Exit::internal, "internal error: activation {} has no function on the device", name_of(kind));
}

}  // namespace millrace::cuda
