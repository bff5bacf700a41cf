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

// For each of `pixels` pixels of n channels: adds those of its taps that are in the line, which begins with pixel `at`.
MR_TARGET_CLONES void add_taps(float* __restrict sum, const float* __restrict line, const std::vector<Tap>* taps,
                               std::int64_t pixels, std::int64_t at, std::int64_t count, std::int64_t n) {
  for (std::int64_t x = 0; x < pixels; ++x)
    for (const Tap& tap : taps[x]) {
      if (tap.index < at || tap.index >= at + count) continue;
      const float* from = line + (tap.index - at) * n;
      const float weight = tap.weight;
      for (std::int64_t i = 0; i < n; ++i) sum[x * n + i] += weight * from[i];
    }
}

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
  std::string implementation() const override { return "threads"; }
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
    // A block of channels and a block of pixels fill a tile.
    const std::int64_t channels = std::min(channels_, tile_count), pixels = tile_count / channels;
    parallel_ranges(lines, grain,
                    [&, depth = depth, height = height, width = width](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t line = begin; line < end; ++line)
                        for (std::int64_t c = 0; c < channels_; c += channels)
                          for (std::int64_t x = 0; x < width; x += pixels)
                            sum_block(sums, to, from,
                                      {line, line / (depth * height), line / height % depth, line % height, x,
                                       std::min(x + pixels, width), c, std::min(channels, channels_ - c)});
                    });
  }

  // The pixels [x, end) of a line of the target, and the channels [c, c + n).
  struct Block {
    std::int64_t line, row, z, y, x, end, c, n;
  };

  // First the sum over the other axes for all pixels of the source that the block reads, then that along the line.
  void sum_block(const Sums& sums, const Tensor& to, const Tensor& from, const Block& b) const {
    Tile total, line;
    const AxisTaps& taps = sums.axes[2];
    const std::int64_t target = (b.line * std::int64_t(taps.size()) + b.x) * channels_ + b.c;
    const bool whole = b.n == channels_;
    float* const out = whole ? float_target(to, target, total) : total.v;
    std::fill_n(out, (b.end - b.x) * b.n, 0.0f);
    const std::int64_t last = taps[std::size_t(b.end - 1)].back().index, most = tile_count / b.n;
    for (std::int64_t at = taps[std::size_t(b.x)].front().index; at <= last; at += most) {
      const std::int64_t count = std::min(most, last + 1 - at);
      combine_lines(sums, from, b, at, count, line);
      add_taps(out, line, &taps[std::size_t(b.x)], b.end - b.x, at, count, b.n);
    }
    if (whole) return write_floats(to, target, (b.end - b.x) * b.n, out);
    for (std::int64_t x = 0; x < b.end - b.x; ++x) {
      Tile one;
      std::copy_n(out + x * b.n, b.n, float_target(to, target + x * channels_, one));
      write_floats(to, target + x * channels_, b.n, one);
    }
  }

  // sum: of the pixels [at, at + count) of the lines of the source that the block reads.
  void combine_lines(const Sums& sums, const Tensor& from, const Block& b, std::int64_t at, std::int64_t count,
                     float* sum) const {
    Tile read;
    std::fill_n(sum, count * b.n, 0.0f);
    const std::int64_t pieces = b.n == channels_ ? 1 : count, length = count * b.n / pieces;
    for (const Tap& z : sums.axes[0][std::size_t(b.z)])
      for (const Tap& y : sums.axes[1][std::size_t(b.y)]) {
        const std::int64_t first = ((b.row * sums.from[0] + z.index) * sums.from[1] + y.index) * sums.from[2] + at;
        for (std::int64_t piece = 0; piece < pieces; ++piece)
          add_scaled(sum + piece * b.n, read_floats(from, (first + piece) * channels_ + b.c, length, read),
                     z.weight * y.weight, length);
      }
  }

  std::int64_t channels_;
  Sums forward_, backward_;
};

}  // namespace

std::unique_ptr<Op> make_upsample(const UpsampleSpec& spec) { return std::make_unique<Upsample>(spec); }

}  // namespace millrace::cpu
