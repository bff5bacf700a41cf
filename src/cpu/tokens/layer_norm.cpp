// Layer norm and RMS norm. A thread computes whole positions. For the gradients of gamma and beta, the positions are
// divided into parts, each of which is added up in float; the parts are added in order, in double.
#include <cmath>
#include <vector>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/tokens/row_sums.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t max_parts = 64, min_part_positions = 16;

MR_TARGET_CLONES void normalise(float* __restrict y, const float* __restrict x, const float* __restrict gamma,
                                const float* __restrict beta, float mean, float inverse, std::int64_t n) {
  if (beta)
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * gamma[i];
}

struct Means {  // of one position
  float x, inverse, g, gx;
};
// dx = (dy * gamma - mean_g - xhat * mean_gx) * inverse
MR_TARGET_CLONES void gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x,
                               const float* __restrict gamma, Means mean, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = (dy[i] * gamma[i] - mean.g - (x[i] - mean.x) * mean.inverse * mean.gx) * mean.inverse;
}
MR_TARGET_CLONES void add_weight_gradients(float* __restrict gamma, float* __restrict beta, const float* __restrict dy,
                                           const float* __restrict x, float mean, float inverse, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) gamma[i] += dy[i] * ((x[i] - mean) * inverse);
  if (beta)
    for (std::int64_t i = 0; i < n; ++i) beta[i] += dy[i];
}

class LayerNorm : public Op {
 public:
  explicit LayerNorm(const LayerNormSpec& spec)
      : spec_(spec), channels_(spec.channels()), positions_(spec.positions()) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (spec_.src.count() == 0) fail(Exit::config, "layer norm: input {} is empty", spec_.src.str());
    parts_ = std::clamp<std::int64_t>(positions_ / min_part_positions, 1, max_parts);
    if (!spec_.weight) ones_.assign(std::size_t(channels_), 1.0f);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    needs.saved = std::size_t(2 * positions_) * sizeof(float);
    needs.workspace = std::size_t(2 * parts_ * channels_) * sizeof(float);
    return needs;
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    const float* gamma = spec_.weight ? args.weight[0].as<float>() : ones_.data();
    const float* beta = spec_.bias ? args.weight[1].as<float>() : nullptr;
    each_position([&](std::int64_t position, Row& row) {
      const float* x = read_floats(args.src[0], position * channels_, channels_, row.x.data());
      const Moments m = moments_of(x);
      if (spec_.mode == Mode::train) saved(args, position) = m;
      float* y = float_target(args.dst, position * channels_, row.y.data());
      normalise(y, x, gamma, beta, m.mean, m.inverse, channels_);
      write_floats(args.dst, position * channels_, channels_, y);
    });
  }

  void backward(const OpArgs& args) override {
    const float* gamma = spec_.weight ? args.weight[0].as<float>() : ones_.data();
    const bool weights = args.diff_weight[0] || args.diff_weight[1];
    float* sums = static_cast<float*>(args.workspace);
    parallel_ranges(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      Row row(channels_);
      for (std::int64_t part = begin; part < end; ++part) {
        float *const of_gamma = sums + part * 2 * channels_, *const of_beta = of_gamma + channels_;
        if (weights) std::fill_n(of_gamma, 2 * channels_, 0.0f);
        for (std::int64_t p = positions_ * part / parts_; p < positions_ * (part + 1) / parts_; ++p) {
          const float* x = read_floats(args.src[0], p * channels_, channels_, row.x.data());
          const float* dy = read_floats(args.diff_dst, p * channels_, channels_, row.dy.data());
          const Moments m = saved(args, p);
          if (weights)
            add_weight_gradients(of_gamma, spec_.bias ? of_beta : nullptr, dy, x, m.mean, m.inverse, channels_);
          if (!args.diff_src[0]) continue;
          const NormProducts sum = rows_.norm_products(dy, x, gamma, m.mean, m.inverse, channels_);
          const float mean_g = layer() ? sum.g / float(channels_) : 0;
          write_gradient(args.diff_src[0], p, row, [&](float* dx) {
            gradient(dx, dy, x, gamma, {m.mean, m.inverse, mean_g, sum.gx / float(channels_)}, channels_);
          });
        }
      }
    });
    for (int w = 0; w < 1 + spec_.bias; ++w)
      if (args.diff_weight[std::size_t(w)]) add_parts(args, w);
  }

 private:
  struct Moments {
    float mean, inverse;
  };
  struct Row {
    explicit Row(std::int64_t channels)
        : x(std::size_t(channels)),
          dy(std::size_t(channels)),
          y(std::size_t(channels)),
          before(std::size_t(channels)) {}
    std::vector<float> x, dy, y, before;
  };

  bool layer() const { return spec_.kind == LayerNormSpec::Kind::layer; }
  Moments& saved(const OpArgs& args, std::int64_t position) const {
    return static_cast<Moments*>(args.saved)[position];
  }

  Moments moments_of(const float* x) const {
    const float mean = layer() ? rows_.sum(x, channels_) / float(channels_) : 0;
    const double variance = double(rows_.squares(x, mean, channels_)) / double(channels_);
    return {mean, float(1 / std::sqrt(variance + double(spec_.epsilon)))};
  }

  template <class Body>
  void each_position(const Body& body) const {
    parallel_ranges(positions_, std::max<std::int64_t>(1, 8192 / channels_), [&](std::int64_t begin, std::int64_t end) {
      Row row(channels_);
      for (std::int64_t p = begin; p < end; ++p) body(p, row);
    });
  }

  // Stores what compute(float*) writes, or adds it.
  template <class Compute>
  void write_gradient(const Tensor& diff_src, std::int64_t position, Row& row, const Compute& compute) const {
    const std::int64_t at = position * channels_;
    float* to = float_target(diff_src, at, row.y.data());
    if (!spec_.accumulates_diff_src) {
      compute(to);
    } else {
      const float* before = read_floats(diff_src, at, channels_, row.before.data());
      compute(row.y.data());
      add(to, before, row.y.data(), channels_);
    }
    write_floats(diff_src, at, channels_, to);
  }

  // w: 0 for gamma, 1 for beta
  void add_parts(const OpArgs& args, int w) const {
    const float* sums = static_cast<const float*>(args.workspace) + w * channels_;
    float* to = args.diff_weight[std::size_t(w)].as<float>();
    const bool add = args.mode[std::size_t(w)] == GradMode::add;
    parallel_ranges(channels_, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        double sum = 0;
        for (std::int64_t part = 0; part < parts_; ++part) sum += double(sums[part * 2 * channels_ + c]);
        to[c] = add ? float(double(to[c]) + sum) : float(sum);
      }
    });
  }

  LayerNormSpec spec_;
  const RowSums& rows_ = row_sums();
  std::vector<float> ones_;  // in place of a weight
  std::int64_t channels_, positions_, parts_ = 1;
};

}  // namespace

std::unique_ptr<Op> make_layer_norm(const LayerNormSpec& spec) { return std::make_unique<LayerNorm>(spec); }

}  // namespace millrace::cpu
