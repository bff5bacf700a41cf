// Gated linear units and layer scale.
#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

class Gated : public Op {
 public:
  explicit Gated(const GatedSpec& spec) : spec_(spec), kernels_(activation_kernels(spec.kind)) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    each_part([&](std::int64_t a, std::int64_t b, std::int64_t at, std::int64_t n) {
      Tile first, second, result, activated;
      const float* value = activate(activated, read_floats(args.src[0], a, n, first), n);
      float* to = float_target(args.dst, at, result);
      multiply(to, value, read_floats(args.src[0], b, n, second), n);
      write_floats(args.dst, at, n, to);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    const Tensor& diff = args.diff_src[0];
    each_part([&](std::int64_t a, std::int64_t b, std::int64_t at, std::int64_t n) {
      Tile first, second, gradient, result, activated, product;
      const float *x = read_floats(args.src[0], a, n, first), *y = read_floats(args.src[0], b, n, second),
                  *g = read_floats(args.diff_dst, at, n, gradient), *value = activate(activated, x, n);
      float* to = float_target(diff, b, result);
      multiply(to, g, value, n);
      write_floats(diff, b, n, to);
      multiply(product, g, y, n);
      to = float_target(diff, a, result);
      if (kernels_.backward)
        kernels_.backward(to, product, backward_reads_src(spec_.kind) ? x : value, n);
      else
        std::copy_n(product.v, n, to);
      write_floats(diff, a, n, to);
    });
  }

 private:
  const float* activate(float* tile, const float* x, std::int64_t n) const {
    if (!kernels_.forward) return x;
    kernels_.forward(tile, x, n);
    return tile;
  }
  // Calls body(index of the first half, of the second half, of the result, n), on all threads.
  template <class Body>
  void each_part(const Body& body) const {
    const std::int64_t channels = spec_.channels();
    const std::int64_t grain = std::max<std::int64_t>(1, 4 * tile_count / channels);
    parallel_ranges(spec_.positions(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p)
        for (std::int64_t c = 0; c < channels; c += tile_count)
          body(2 * p * channels + c, (2 * p + 1) * channels + c, p * channels + c, std::min(tile_count, channels - c));
    });
  }

  GatedSpec spec_;
  ActivationKernels kernels_;
};

// A thread adds the gradients of its part of the weights over all positions, in their order.
class Scale : public Op {
 public:
  explicit Scale(const ScaleSpec& spec)
      : spec_(spec), channels_(spec.src[-1]), positions_(spec.src.count() / spec.src[-1]) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void forward(const OpArgs& args) override { scale(args.dst, args.src[0], args.weight[0]); }
  void backward(const OpArgs& args) override {
    if (args.diff_weight[0]) add_weight_gradient(args);
    if (args.diff_src[0]) scale(args.diff_src[0], args.diff_dst, args.weight[0]);
  }

 private:
  void scale(const Tensor& to, const Tensor& from, const Tensor& weight) const {
    const std::int64_t grain = std::max<std::int64_t>(1, 8 * tile_count / channels_);
    parallel_ranges(positions_, grain, [&](std::int64_t begin, std::int64_t end) {
      Tile a, b;
      for (std::int64_t p = begin; p < end; ++p)
        for (std::int64_t c = 0; c < channels_; c += tile_count) {
          const std::int64_t at = p * channels_ + c, n = std::min(tile_count, channels_ - c);
          float* out = float_target(to, at, b);
          multiply(out, read_floats(from, at, n, a), weight.as<float>() + c, n);
          write_floats(to, at, n, out);
        }
    });
  }
  void add_weight_gradient(const OpArgs& args) const {
    constexpr std::int64_t part = 64;
    parallel_ranges(channels_, part, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; begin += part) {
        const std::int64_t n = std::min(part, end - begin);
        Tile x, g;
        float* sum = args.diff_weight[0].as<float>() + begin;
        if (args.mode[0] == GradMode::write) std::fill_n(sum, n, 0.0f);
        for (std::int64_t p = 0; p < positions_; ++p)
          add_products(sum, read_floats(args.src[0], p * channels_ + begin, n, x),
                       read_floats(args.diff_dst, p * channels_ + begin, n, g), n);
      }
    });
  }

  ScaleSpec spec_;
  std::int64_t channels_, positions_;
};

}  // namespace

std::unique_ptr<Op> make_gated(const GatedSpec& spec) { return std::make_unique<Gated>(spec); }
std::unique_ptr<Op> make_scale(const ScaleSpec& spec) { return std::make_unique<Scale>(spec); }

}  // namespace millrace::cpu
