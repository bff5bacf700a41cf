// Pooling. Forward and backward both gather: each pixel of the result reads the pixels that it depends on. So the
// result is not zeroed first, and no two threads write to the same pixel. Global pooling is average pooling with a
// window of the size of the image.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/pool_kernels.hpp"

namespace millrace::cpu {
namespace {

// For each coordinate on one side of an axis: the coordinates on the other side that share a window with it, and the
// index of the tap in the window.
struct AxisOverlaps {
  struct AxisOverlap {
    std::int64_t other, tap;
  };
  std::vector<std::size_t> begin{0};
  std::vector<AxisOverlap> list;
  void close() { begin.push_back(list.size()); }
};

struct Axis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  AxisOverlaps of_out() const {  // the inputs that each output reads, in the order of the window
    AxisOverlaps m;
    for (std::int64_t o = 0; o < out; ++o, m.close())
      for (std::int64_t k = 0; k < kernel; ++k) {
        const std::int64_t i = o * stride - pad + k * dilation;
        if (i >= 0 && i < in) m.list.push_back({i, k});
      }
    return m;
  }
  AxisOverlaps of_in() const {  // the outputs that read each input
    AxisOverlaps m;
    for (std::int64_t i = 0; i < in; ++i, m.close())
      for (std::int64_t k = 0; k < kernel; ++k) {
        const std::int64_t o = i + pad - k * dilation;
        if (o >= 0 && o % stride == 0 && o / stride < out) m.list.push_back({o / stride, k});
      }
    return m;
  }
};

// Iterates over the pixels of the result in memory order, without divisions.
struct Place {
  std::int64_t pixel, image, at[3];
  Place(std::int64_t pixel_, const std::int64_t (&extent)[3]) : pixel(pixel_) {
    at[2] = pixel % extent[2];
    at[1] = pixel / extent[2] % extent[1];
    at[0] = pixel / extent[2] / extent[1] % extent[0];
    image = pixel / extent[2] / extent[1] / extent[0];
  }
  void next(const std::int64_t (&extent)[3]) {
    ++pixel;
    if (++at[2] < extent[2]) return;
    at[2] = 0;
    if (++at[1] < extent[1]) return;
    at[1] = 0;
    if (++at[0] < extent[0]) return;
    at[0] = 0;
    ++image;
  }
};

class Pool : public Op {
 public:
  explicit Pool(const PoolSpec& spec) : spec_(spec), channels_(spec.src[-1]) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    const int rank = spec_.src.spatial_rank();
    if (rank < 0 || rank > 3)
      fail(Exit::config, "pool: input {} has {} spatial dimensions (0 to 3 are supported)", spec_.src.str(), rank);
    const Shape dst = spec_.dst();
    for (int a = 0; a < rank; ++a) {
      Axis& axis = axes_[3 - rank + a];
      axis.in = spec_.src[1 + a];
      if (spec_.kind == PoolSpec::Kind::global) {
        axis.kernel = axis.in;
      } else {
        const Window& w = spec_.window;
        axis = {axis.in, dst[1 + a], w.kernel[a], w.stride[a], w.pad[a], w.dilation[a]};
      }
    }
    for (int a = 0; a < 3; ++a) {
      of_out_[a] = axes_[a].of_out();
      of_in_[a] = axes_[a].of_in();
      taps_ *= axes_[a].kernel;
      in_[a] = axes_[a].in;
      out_[a] = axes_[a].out;
    }
    if (is_max() && taps_ > 65535)
      fail(Exit::config, "pool: a window of {} positions is too large for max pooling. at most 65535", taps_);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (is_max() && spec_.mode == Mode::train) needs.saved = std::size_t(spec_.dst().count()) * position_size();
    return needs;
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    if (windows_touch()) return find_maxima(args);
    const bool keep = is_max() && spec_.mode == Mode::train;
    gather(
        args.dst, out_, of_out_, args.src[0], in_,
        [&](float* to, std::int32_t* position, const pool::Taps& taps, std::int64_t n, bool first) {
          is_max() ? pool::maximum(to, position, taps, n, first) : pool::sum(to, taps, n, first);
        },
        [&](float* to, const std::int32_t* position, std::int64_t at, std::int64_t n) {
          if (!is_max()) pool::scale(to, 1 / float(taps_), n);
          if (keep) pool::narrow(positions(args, at), position, n, wide());
        },
        nullptr);
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    if (windows_touch()) return spread_lines(args);
    gather(
        args.diff_src[0], in_, of_in_, args.diff_dst, out_,
        [&](float* to, std::int32_t*, const pool::Taps& taps, std::int64_t n, bool first) {
          is_max() ? pool::routed_sum(to, taps, n, first, wide()) : pool::sum(to, taps, n, first);
        },
        [&](float* to, const std::int32_t*, std::int64_t, std::int64_t n) {
          if (!is_max()) pool::scale(to, 1 / float(taps_), n);
        },
        is_max() ? args.saved : nullptr);
  }

 private:
  bool is_max() const { return spec_.kind == PoolSpec::Kind::max; }
  bool wide() const { return taps_ > 256; }
  // Windows side by side, such as 2 x 2 with stride 2: each pixel of the source is in at most one window.
  bool windows_touch() const {
    return is_max() && !wide() && axes_[2].kernel * channels_ <= tile_count &&
           std::all_of(axes_, axes_ + 3, [](const Axis& a) {
             return a.stride == a.kernel && a.pad == 0 && a.dilation == 1 && a.out * a.kernel <= a.in;
           });
  }

  void find_maxima(const OpArgs& args) const {
    const std::int64_t lines = spec_.src[0] * out_[0] * out_[1];
    parallel_ranges(lines, std::max<std::int64_t>(1, 8192 / (in_[2] * axes_[1].kernel * channels_)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t line = begin; line < end; ++line) find_maxima_of_line(args, line);
                    });
  }

  // Writes one line of the result.
  void find_maxima_of_line(const OpArgs& args, std::int64_t line) const {
    Tile read, written;
    std::uint8_t unused[tile_count];
    const bool keep = spec_.mode == Mode::train;
    const std::int64_t image = line / (out_[0] * out_[1]), z = line / out_[1] % out_[0], y = line % out_[1];
    const std::int64_t depth = axes_[0].kernel, height = axes_[1].kernel, width = axes_[2].kernel;
    const std::int64_t most = tile_count / (width * channels_);
    for (std::int64_t x = 0; x < out_[2]; x += most) {
      const std::int64_t n = std::min(most, out_[2] - x), at = (line * out_[2] + x) * channels_;
      float* best = float_target(args.dst, at, written);
      auto* of_line = keep ? static_cast<std::uint8_t*>(args.saved) + at : unused;
      for (std::int64_t number = 0; number < depth * height; ++number) {
        const std::int64_t from =
            (image * in_[0] + z * depth + number / height) * in_[1] + y * height + number % height;
        const float* values =
            read_floats(args.src[0], (from * in_[2] + x * width) * channels_, n * width * channels_, read);
        pool::maximum_of_line(best, of_line, values, int(number * width), n, width, channels_);
      }
      write_floats(args.dst, at, n * channels_, best);
    }
  }

  void spread_lines(const OpArgs& args) const {
    const std::int64_t lines = spec_.src[0] * in_[0] * in_[1];
    parallel_ranges(lines, std::max<std::int64_t>(1, 8192 / (in_[2] * channels_)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t line = begin; line < end; ++line) spread_line(args, line);
                    });
  }

  // Writes the gradient of one line of the source.
  void spread_line(const OpArgs& args, std::int64_t line) const {
    Tile read, written;
    const std::int64_t image = line / (in_[0] * in_[1]), z = line / in_[1] % in_[0], y = line % in_[1];
    const std::int64_t depth = axes_[0].kernel, height = axes_[1].kernel, width = axes_[2].kernel;
    const bool inside = z / depth < out_[0] && y / height < out_[1];  // the last lines may be in no window
    const std::int64_t from = ((image * out_[0] + z / depth) * out_[1] + y / height) * out_[2];
    const int number = int((z % depth * height + y % height) * width);
    const std::int64_t most = tile_count / (width * channels_), pixels = inside ? out_[2] : 0;
    for (std::int64_t x = 0; x < pixels; x += most) {
      const std::int64_t n = std::min(most, pixels - x), at = (line * in_[2] + x * width) * channels_;
      const float* values = read_floats(args.diff_dst, (from + x) * channels_, n * channels_, read);
      float* to = float_target(args.diff_src[0], at, written);
      pool::spread(to, values, static_cast<const std::uint8_t*>(args.saved) + (from + x) * channels_, number, n, width,
                   channels_);
      write_floats(args.diff_src[0], at, n * width * channels_, to);
    }
    std::fill(element(args.diff_src[0], (line * in_[2] + pixels * width) * channels_),
              element(args.diff_src[0], (line + 1) * in_[2] * channels_), std::byte{0});
  }
  std::size_t position_size() const { return wide() ? 2 : 1; }
  std::byte* positions(const OpArgs& args, std::int64_t at) const {
    return static_cast<std::byte*>(args.saved) + std::size_t(at) * position_size();
  }

  // For each pixel of `to` and each group of channels: calls collect(values, position, taps, channels, first) until all
  // overlapping pixels of `from` are processed, then finish(values, position, element, channels).
  template <class Collect, class Finish>
  void gather(const Tensor& to, const std::int64_t (&extent)[3], const AxisOverlaps (&overlaps)[3], const Tensor& from,
              const std::int64_t (&from_extent)[3], const Collect& collect, const Finish& finish,
              const void* saved) const {
    const std::int64_t groups = (channels_ + pool::channels_max - 1) / pool::channels_max;
    const std::int64_t pixels = spec_.src[0] * extent[0] * extent[1] * extent[2];
    const std::int64_t from_pixels = from_extent[0] * from_extent[1] * from_extent[2];
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      alignas(64) float tiles[pool::taps_max][pool::channels_max], to_tile[pool::channels_max];
      alignas(64) std::int32_t position[pool::channels_max];
      Place place(begin / groups, extent);
      for (std::int64_t task = begin, group = begin % groups; task < end; ++task) {
        const std::int64_t c = group * pool::channels_max, n = std::min(pool::channels_max, channels_ - c);
        const std::int64_t at = place.pixel * channels_ + c, image = place.image * from_pixels;
        float* values = float_target(to, at, to_tile);
        pool::Taps taps;
        bool first = true;
        const auto flush = [&] {
          if (taps.count) {
            collect(values, position, taps, n, first);
            first = false;
            taps.count = 0;
          }
        };
        each(overlaps[0], place.at[0], [&](auto mz) {
          each(overlaps[1], place.at[1], [&](auto my) {
            each(overlaps[2], place.at[2], [&](auto mx) {
              const std::int64_t other = image + (mz.other * from_extent[1] + my.other) * from_extent[2] + mx.other;
              const std::int64_t element = other * channels_ + c;
              taps.values[taps.count] = read_floats(from, element, n, tiles[taps.count]);
              if (saved)
                taps.positions[taps.count] =
                    static_cast<const std::byte*>(saved) + element * std::int64_t(position_size());
              taps.numbers[taps.count] = std::int32_t((mz.tap * axes_[1].kernel + my.tap) * axes_[2].kernel + mx.tap);
              if (++taps.count == pool::taps_max) flush();
            });
          });
        });
        flush();
        if (first) {  // the window covers only padding
          std::fill_n(values, n, 0.0f);
          std::fill_n(position, n, 0);
        }
        finish(values, position, at, n);
        write_floats(to, at, n, values);
        if (++group == groups) {
          group = 0;
          place.next(extent);
        }
      }
    };
    parallel_ranges(pixels * groups, std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(1, channels_)), body);
  }

  template <class Body>
  static void each(const AxisOverlaps& m, std::int64_t coordinate, const Body& body) {
    for (std::size_t i = m.begin[std::size_t(coordinate)]; i < m.begin[std::size_t(coordinate) + 1]; ++i)
      body(m.list[i]);
  }

  PoolSpec spec_;
  std::int64_t channels_, taps_ = 1;
  Axis axes_[3];
  std::int64_t in_[3], out_[3];
  AxisOverlaps of_out_[3], of_in_[3];
};

}  // namespace

std::unique_ptr<Op> make_pool(const PoolSpec& spec) { return std::make_unique<Pool>(spec); }

}  // namespace millrace::cpu
