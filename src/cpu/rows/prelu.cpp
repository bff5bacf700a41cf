// A slope below zero: learned ones (PReLU), or a constant (leaky ReLU). For the gradients of the slopes, the positions
// are divided into parts; the sums of a part are in double, and the parts are added in order.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t max_prelu_parts = 64, min_part_elements = 16 * tile_count;

MR_TARGET_CLONES void rectify(float* y, const float* x, const float* slope, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : slope[i] * x[i];
}
MR_TARGET_CLONES void rectify_gradient(float* dx, const float* x, const float* dy, const float* slope, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = x[i] > 0 ? dy[i] : slope[i] * dy[i];
}
MR_TARGET_CLONES void slope_terms(float* to, const float* x, const float* dy, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = x[i] > 0 ? 0 : x[i] * dy[i];
}
MR_TARGET_CLONES void add_row(double* sum, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += double(x[i]);
}

class Prelu : public Op {
 public:
  explicit Prelu(const PreluSpec& spec) : spec_(spec) {
    spec.check();
    dispatch_dtype(spec.dtype, [](auto) {});
    channels_ = spec.channels();
    positions_ = spec.src.count() / channels_;
    const std::int64_t most = std::min(max_prelu_parts, positions_);
    parts_ = std::clamp<std::int64_t>(spec.src.count() / min_part_elements, 1, most);
  }
  MemoryRequirements memory_requirements() const override {
    const bool sums = spec_.mode == Mode::train && spec_.slopes > 0;
    return {sums ? std::size_t(parts_ * channels_) * sizeof(double) : 0, 0, 0};
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    const std::int64_t grain = std::max<std::int64_t>(1, 8 * tile_count / channels_);
    parallel_ranges(positions_, grain, [&](std::int64_t begin, std::int64_t end) {
      Tile slopes, x, y;
      begin_slopes(slopes, args);
      each_tile(begin, end, [&](std::int64_t at, std::int64_t channel, std::int64_t n) {
        float* const out = float_target(args.dst, at, y);
        rectify(out, read_floats(args.src[0], at, n, x), slopes_of(slopes, args, channel, n), n);
        write_floats(args.dst, at, n, out);
      });
    });
  }

  void backward(const OpArgs& args) override {
    double* const sums = args.diff_weight[0] ? static_cast<double*>(args.workspace) : nullptr;
    parallel_ranges(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part)
        run_part(args, part, sums ? sums + part * channels_ : nullptr);
    });
    if (sums) add_parts(args, sums);
  }

 private:
  // Calls body(element, channel, n) for whole positions, or for parts of wide ones.
  template <class Body>
  void each_tile(std::int64_t begin, std::int64_t end, const Body& body) const {
    const std::int64_t at_once = std::max<std::int64_t>(1, tile_count / channels_);
    for (std::int64_t p = begin; p < end; p += at_once) {
      const std::int64_t count = std::min(at_once, end - p) * channels_;
      for (std::int64_t c = 0; c < count; c += tile_count) body(p * channels_ + c, c, std::min(tile_count, count - c));
    }
  }
  // Those of a tile that begins with channel 0, unless positions are wider than tiles.
  void begin_slopes(float* to, const OpArgs& args) const {
    const float* const learned = spec_.slopes > 0 ? args.weight[0].as<float>() : nullptr;
    const bool by_channel = spec_.slopes > 1 && channels_ <= tile_count;
    for (std::int64_t i = 0; i < tile_count; ++i)
      to[i] = by_channel ? learned[i % channels_] : learned ? learned[0] : spec_.slope;
  }
  const float* slopes_of(float* tile, const OpArgs& args, std::int64_t channel, std::int64_t n) const {
    if (spec_.slopes > 1 && channels_ > tile_count) std::copy_n(args.weight[0].as<float>() + channel, n, tile);
    return tile;
  }

  void run_part(const OpArgs& args, std::int64_t part, double* sums) const {
    Tile slopes, x, dy, result;
    begin_slopes(slopes, args);
    if (sums) std::fill_n(sums, channels_, 0.0);
    const std::int64_t begin = positions_ * part / parts_, end = positions_ * (part + 1) / parts_;
    each_tile(begin, end, [&](std::int64_t at, std::int64_t channel, std::int64_t n) {
      const float *const in = read_floats(args.src[0], at, n, x), *const g = read_floats(args.diff_dst, at, n, dy);
      if (sums) {
        slope_terms(result, in, g, n);
        const std::int64_t row = std::min(n, channels_);
        for (std::int64_t i = 0; i < n; i += row) add_row(sums + channel, result + i, row);
      }
      if (!args.diff_src[0]) return;
      float* const out = float_target(args.diff_src[0], at, result);
      rectify_gradient(out, in, g, slopes_of(slopes, args, channel, n), n);
      write_floats(args.diff_src[0], at, n, out);
    });
  }

  void add_parts(const OpArgs& args, double* sums) const {
    parallel_ranges(channels_, 1024, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = 1; part < parts_; ++part)
        for (std::int64_t c = begin; c < end; ++c) sums[c] += sums[part * channels_ + c];
    });
    if (spec_.slopes == 1)
      for (std::int64_t c = 1; c < channels_; ++c) sums[0] += sums[c];
    float* const to = args.diff_weight[0].as<float>();
    const bool adds = args.mode[0] == GradMode::add;
    for (std::int64_t c = 0; c < spec_.slopes; ++c) to[c] = float(sums[c] + (adds ? double(to[c]) : 0));
  }

  PreluSpec spec_;
  std::int64_t channels_ = 1, positions_ = 1, parts_ = 1;
};

}  // namespace

std::unique_ptr<Op> make_prelu(const PreluSpec& spec) { return std::make_unique<Prelu>(spec); }

}  // namespace millrace::cpu
