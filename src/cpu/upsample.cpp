// Upsampling. Both directions are weighted sums over a few neighbours along each axis: the backward pass sums, for each
// element of the source, the gradients of the results that read it.
#include <cmath>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "millrace/ops/spatial.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES void add_scaled(float* __restrict sum, const float* __restrict from, float weight, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * from[i];
}

struct Tap {
  std::int64_t index;
  float weight;
};
using AxisTaps = std::vector<std::vector<Tap>>;  // by element of the target along one axis

AxisTaps forward_taps(UpsampleSpec::Kind kind, std::int64_t extent, std::int64_t factor) {
  AxisTaps taps(std::size_t(extent * factor));
  for (std::int64_t o = 0; o < extent * factor; ++o) {
    if (kind == UpsampleSpec::Kind::nearest) {
      taps[std::size_t(o)] = {{o / factor, 1}};
      continue;
    }
    const double x = std::max(0.0, (double(o) + 0.5) / double(factor) - 0.5);
    const std::int64_t low = std::int64_t(x), high = std::min(low + 1, extent - 1);
    const float part = float(x - double(low));
    taps[std::size_t(o)] = {{low, 1 - part}, {high, part}};
  }
  return taps;
}

AxisTaps transposed(const AxisTaps& taps, std::int64_t extent) {
  AxisTaps out((std::size_t(extent)));
  for (std::size_t o = 0; o < taps.size(); ++o)
    for (const Tap& tap : taps[o]) out[std::size_t(tap.index)].push_back({std::int64_t(o), tap.weight});
  return out;
}

class Upsample : public Op {
 public:
  explicit Upsample(const UpsampleSpec& spec) : channels_(spec.src[-1]) {
    dispatch_dtype(spec.dtype, [](auto) {});
    for (int axis = 1; axis + 1 < spec.src.rank; ++axis) {
      const AxisTaps taps = forward_taps(spec.kind, spec.src[axis], spec.factor);
      forward_.axes[std::size_t(axis + 3 - spec.src.rank + 1)] = taps;
      backward_.axes[std::size_t(axis + 3 - spec.src.rank + 1)] = transposed(taps, spec.src[axis]);
    }
    for (Sums* sums : {&forward_, &backward_}) {
      sums->rows = spec.src[0];
      for (AxisTaps& axis : sums->axes)
        if (axis.empty()) axis = {{{0, 1}}};
    }
    backward_.from = forward_.extents();
    forward_.from = backward_.extents();
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "openmp"; }
  void forward(const OpArgs& args) override { sum(forward_, args.dst, args.src[0]); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) sum(backward_, args.diff_src[0], args.diff_dst);
  }

 private:
  struct Sums {
    std::int64_t rows = 0;
    std::array<AxisTaps, 3> axes;                  // those that the data lacks have one element
    std::array<std::int64_t, 3> from{};            // extents of what is read
    std::array<std::int64_t, 3> extents() const {  // of the target
      return {std::int64_t(axes[0].size()), std::int64_t(axes[1].size()), std::int64_t(axes[2].size())};
    }
  };

  void sum(const Sums& sums, const Tensor& to, const Tensor& from) const {
    const auto [depth, height, width] = sums.extents();
    const std::int64_t lines = sums.rows * depth * height;
    const std::int64_t grain = std::max<std::int64_t>(1, 4 * tile_count / (width * channels_));
    parallel_ranges(lines, grain,
                    [&, depth = depth, height = height, width = width](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t line = begin; line < end; ++line) {
                        const std::int64_t row = line / (depth * height), z = line / height % depth, y = line % height;
                        for (std::int64_t x = 0; x < width; ++x)
                          sum_at(sums, to, from, row, {z, y, x}, (line * width + x) * channels_);
                      }
                    });
  }

  void sum_at(const Sums& sums, const Tensor& to, const Tensor& from, std::int64_t row,
              const std::array<std::int64_t, 3>& at, std::int64_t target) const {
    Tile total, read;
    for (std::int64_t c = 0; c < channels_; c += tile_count) {
      const std::int64_t n = std::min(tile_count, channels_ - c);
      float* out = float_target(to, target + c, total);
      std::fill_n(out, n, 0.0f);
      for (const Tap& z : sums.axes[0][std::size_t(at[0])])
        for (const Tap& y : sums.axes[1][std::size_t(at[1])])
          for (const Tap& x : sums.axes[2][std::size_t(at[2])]) {
            const std::int64_t place =
                ((row * sums.from[0] + z.index) * sums.from[1] + y.index) * sums.from[2] + x.index;
            add_scaled(out, read_floats(from, place * channels_ + c, n, read), z.weight * y.weight * x.weight, n);
          }
      write_floats(to, target + c, n, out);
    }
  }

  std::int64_t channels_;
  Sums forward_, backward_;
};

}  // namespace

std::unique_ptr<Op> make_upsample(const UpsampleSpec& spec) { return std::make_unique<Upsample>(spec); }

}  // namespace millrace::cpu
