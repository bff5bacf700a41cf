#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/common/vector_math.hpp"

namespace millrace::cpu {
namespace {

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
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * (x[i] < 0 ? 0.01f : 1.0f);
}
MR_TARGET_CLONES void leaky_relu_gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict y,
                                          std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (y[i] <= 0 ? 0.01f : 1.0f);
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

struct Kernels {
  void (*forward)(float* y, const float* x, std::int64_t n);
  // kept: x if backward_reads_src(), otherwise y.
  void (*backward)(float* dx, const float* dy, const float* kept, std::int64_t n);
};

Kernels kernels_of(Activation kind) {
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
    case Activation::hardswish:
      return {&hardswish, &hardswish_gradient};
    case Activation::none:
      break;
  }
  return {};
}

class ActivationOp : public Op {
 public:
  explicit ActivationOp(const ActivationSpec& spec) : spec_(spec), kernels_(kernels_of(spec.kind)) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "openmp"; }

  void forward(const OpArgs& args) override {
    if (spec_.kind == Activation::none) return parallel_copy(args.dst, args.src[0]);
    parallel_tiles(spec_.src.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile x, y;
      float* to = float_target(args.dst, begin, y);
      kernels_.forward(to, read_floats(args.src[0], begin, n, x), n);
      write_floats(args.dst, begin, n, to);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    if (spec_.kind == Activation::none) return parallel_copy(args.diff_src[0], args.diff_dst);
    const Tensor& kept = backward_reads_src(spec_.kind) ? args.src[0] : args.dst;
    parallel_tiles(spec_.src.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile dx, dy, value;
      float* to = float_target(args.diff_src[0], begin, dx);
      kernels_.backward(to, read_floats(args.diff_dst, begin, n, dy), read_floats(kept, begin, n, value), n);
      write_floats(args.diff_src[0], begin, n, to);
    });
  }

 private:
  ActivationSpec spec_;
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec) { return std::make_unique<ActivationOp>(spec); }

}  // namespace millrace::cpu
