#include "cpu/common/activation_kernels.hpp"

#include "cpu/common/tile.hpp"
#include "cpu/common/vector_math.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu {
namespace {

// Hidden from the compiler, which would not multiply by 1 and make a branch instead of a vector loop.
struct Slopes {
  float low = 0.01f, high = 1;
  __attribute__((always_inline)) Slopes() { asm("" : "+m"(low), "+m"(high)); }
};

MR_TARGET_CLONES void relu(float* __restrict y, const float* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
}
MR_TARGET_CLONES void relu_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                    std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = dy[i];
    dx[i] = y[i] <= 0 ? 0 : g;
  }
}
MR_TARGET_CLONES void tanh(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) y[i] = fast_tanh(x[i], bounds);
}
MR_TARGET_CLONES void tanh_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                    std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (1 - y[i] * y[i]);
}
MR_TARGET_CLONES void gelu(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * fast_normal(x[i], bounds).cumulative;
}
MR_TARGET_CLONES void gelu_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                                    std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) {
    const Normal normal = fast_normal(x[i], bounds);
    dx[i] = dy[i] * (normal.cumulative + x[i] * normal.density);
  }
}
MR_TARGET_CLONES void gelu_tanh(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * fast_tanh_normal(x[i], bounds).cumulative;
}
MR_TARGET_CLONES void gelu_tanh_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                                         std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) {
    const Normal normal = fast_tanh_normal(x[i], bounds);
    dx[i] = dy[i] * (normal.cumulative + x[i] * normal.density);
  }
}

MR_TARGET_CLONES void silu(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * fast_sigmoid(x[i], bounds);
}
MR_TARGET_CLONES void silu_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                                    std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = fast_sigmoid(x[i], bounds);
    dx[i] = dy[i] * s * (1 + x[i] * (1 - s));
  }
}
MR_TARGET_CLONES void sigmoid(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) y[i] = fast_sigmoid(x[i], bounds);
}
MR_TARGET_CLONES void sigmoid_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                       std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * y[i] * (1 - y[i]);
}
MR_TARGET_CLONES void leaky_relu(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const Slopes slope;
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * (x[i] < 0 ? slope.low : slope.high);
}
MR_TARGET_CLONES void leaky_relu_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                          std::int64_t n) {
  const Slopes slope;
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (y[i] <= 0 ? slope.low : slope.high);
}
MR_TARGET_CLONES void elu(float* __restrict y, const float* __restrict x, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) {
    const float low = fast_expm1(with_bits(bits_of(x[i]) | sign_bit), bounds);
    y[i] = x[i] < 0 ? low : x[i];
  }
}
MR_TARGET_CLONES void elu_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (1 + (y[i] < 0 ? y[i] : 0.0f));
}
MR_TARGET_CLONES void relu6(float* __restrict y, const float* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float low = x[i] < 0 ? 0 : x[i];
    y[i] = low > 6 ? 6 : low;
  }
}
MR_TARGET_CLONES void relu6_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                     std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float low = y[i] <= 0 ? 0.0f : dy[i];
    dx[i] = y[i] >= 6 ? 0.0f : low;
  }
}
MR_TARGET_CLONES void hardsigmoid(float* __restrict y, const float* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float low = x[i] < -3 ? -3 : x[i];
    y[i] = ((low > 3 ? 3 : low) + 3) * (1.0f / 6);
  }
}
MR_TARGET_CLONES void hardsigmoid_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                                           std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float slope = dy[i] * (1.0f / 6), low = x[i] <= -3 ? 0.0f : slope;
    dx[i] = x[i] >= 3 ? 0.0f : low;
  }
}
MR_TARGET_CLONES void hardswish(float* __restrict y, const float* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float low = x[i] < -3 ? -3 : x[i], gate = (low > 3 ? 3 : low) + 3;
    y[i] = x[i] * (gate * (1.0f / 6));
  }
}
MR_TARGET_CLONES void hardswish_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                                         std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float slope = x[i] * (1.0f / 3) + 0.5f, low = x[i] < -3 ? 0.0f : slope;
    dx[i] = dy[i] * (x[i] > 3 ? 1.0f : low);
  }
}

}  // namespace

ActivationKernels activation_kernels(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return {&relu, &relu_gradient};
    case Activation::tanh:
      return {&tanh, &tanh_gradient};
    case Activation::gelu:
      return {&gelu, &gelu_gradient};
    case Activation::gelu_tanh:
      return {&gelu_tanh, &gelu_tanh_gradient};
    case Activation::silu:
      return {&silu, &silu_gradient};
    case Activation::sigmoid:
      return {&sigmoid, &sigmoid_gradient};
    case Activation::leaky_relu:
      return {&leaky_relu, &leaky_relu_gradient};
    case Activation::elu:
      return {&elu, &elu_gradient};
    case Activation::relu6:
      return {&relu6, &relu6_gradient};
    case Activation::hardsigmoid:
      return {&hardsigmoid, &hardsigmoid_gradient};
    case Activation::hardswish:
      return {&hardswish, &hardswish_gradient};
    case Activation::none:
      break;
  }
  return {};
}

void activate(Activation kind, const Tensor& dst, const Tensor& src) {
  const auto kernels = activation_kernels(kind);
  parallel_tiles(src.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile x, y;
    float* to = float_target(dst, begin, y);
    kernels.forward(to, read_floats(src, begin, n, x), n);
    write_floats(dst, begin, n, to);
  });
}

void activate_backward(Activation kind, const Tensor& diff_src, const Tensor& diff_dst, const Tensor& kept) {
  const auto kernels = activation_kernels(kind);
  parallel_tiles(diff_dst.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile dx, dy, value;
    float* to = float_target(diff_src, begin, dx);
    kernels.backward(to, read_floats(diff_dst, begin, n, dy), read_floats(kept, begin, n, value), n);
    write_floats(diff_src, begin, n, to);
  });
}

}  // namespace millrace::cpu
