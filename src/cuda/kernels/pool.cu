// Max, average and global average pooling. The kernels handle packs of channels, or single channels if their number is
// not a multiple of the pack. The backward pass of global average pooling is that of average pooling with the whole
// image as the window.
#include <algorithm>
#include <limits>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/pool_kernels.hpp"

namespace millrace::cuda {
namespace {

using namespace pool;

constexpr int tile_max = 32, threads_max = 256;
constexpr std::int64_t index_max = std::numeric_limits<std::int32_t>::max();

class Pool : public Op {
 public:
  Pool(const PoolSpec& spec, const LaunchContext& context) : spec_(spec), context_(context), channels_(spec.src[-1]) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    const int rank = spec_.src.spatial_rank();
    if (rank < 0 || rank > 3) fail(Exit::config, "pool: input {} must have 0 to 3 spatial dimensions", spec_.src.str());
    const Shape dst = spec_.dst();
    for (int a = 0; a < rank; ++a) {
      Axis& axis = g_.axis[3 - rank + a];
      axis.in = int(spec_.src[1 + a]);
      if (spec_.kind == PoolSpec::Kind::global) {
        axis.kernel = axis.in;
      } else {
        const Window& w = spec_.window;
        axis.out = int(dst[1 + a]);
        axis.kernel = int(w.kernel[a]);
        axis.stride = int(w.stride[a]);
        axis.pad = int(w.pad[a]);
        axis.dilation = int(w.dilation[a]);
      }
    }
    for (int a = 0; a < 3; ++a) {
      Axis& axis = g_.axis[a];
      axis.by_stride = Divider(axis.stride);
      axis.by_dilation = Divider(axis.dilation);
      g_.by_in[a] = Divider(axis.in);
      g_.by_out[a] = Divider(axis.out);
      taps_ *= axis.kernel;
      in_pixels_ *= axis.in;
      out_pixels_ *= axis.out;
    }
    if (std::max(in_pixels_, out_pixels_) * channels_ > index_max)
      fail(Exit::config, "pool: one image of {} is too large (2^31 elements)", spec_.src.str());
    g_.channels = int(channels_);
    g_.share = 1 / float(taps_);
    if (is_max() && taps_ > 65535)
      fail(Exit::config, "pool: a window of {} positions is too large for max pooling. at most 65535", taps_);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (is_max() && spec_.mode == Mode::train) needs.saved = std::size_t(spec_.dst().count()) * (wide() ? 2 : 1);
    return needs;
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    with_pack([&](auto zero, auto pack, auto position) {
      using T = decltype(zero);
      using Position = decltype(position);
      constexpr int n = pack();
      T* dst = args.dst.as<T>();
      const T* src = args.src[0].as<T>();
      if (spec_.kind == PoolSpec::Kind::global) return global<T, n>(dst, src);
      Position* kept = spec_.mode == Mode::train ? static_cast<Position*>(args.saved) : nullptr;
      by_images(n, out_pixels_, [&](const Geometry& g, std::int64_t count, std::int64_t in, std::int64_t out) {
        if (is_max())
          for_each(context_, count, MaxForward<T, n, Position>{g, dst + out, src + in, kept ? kept + out : nullptr});
        else
          for_each(context_, count, AverageForward<T, n>{g, dst + out, src + in});
      });
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    with_pack([&](auto zero, auto pack, auto position) {
      using T = decltype(zero);
      using Position = decltype(position);
      constexpr int n = pack();
      T* dx = args.diff_src[0].as<T>();
      const T* dy = args.diff_dst.as<T>();
      const Position* kept = static_cast<const Position*>(args.saved);
      by_images(n, in_pixels_, [&](const Geometry& g, std::int64_t count, std::int64_t in, std::int64_t out) {
        if (is_max())
          for_each(context_, count, Backward<T, n, Position, true>{g, dx + in, dy + out, kept + out});
        else
          for_each(context_, count, Backward<T, n, Position, false>{g, dx + in, dy + out, nullptr});
      });
    });
  }

 private:
  bool is_max() const { return spec_.kind == PoolSpec::Kind::max; }
  bool wide() const { return is_max() && taps_ > 256; }

  // Calls body(T{}, size of a pack, type of a position{}).
  template <class Body>
  void with_pack(const Body& body) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      constexpr int n = pack_size<decltype(zero)>;
      using One = std::integral_constant<int, 1>;
      if (wide())
        body(zero, One{}, std::uint16_t{});
      else if (channels_ % n == 0)
        body(zero, std::integral_constant<int, n>{}, std::uint8_t{});
      else
        body(zero, One{}, std::uint8_t{});
    });
  }

  // Calls body(geometry, number of packs, first element of src, first element of dst) for groups of images that are
  // small enough for 31-bit indices.
  template <class Body>
  void by_images(int pack, std::int64_t pixels, const Body& body) const {
    Geometry g = g_;
    g.packs = int(channels_) / pack;
    g.by_packs = Divider(g.packs);
    const std::int64_t image_packs = pixels * g.packs, max_images = image_packs ? index_max / image_packs : 1;
    for (std::int64_t image = 0; image < spec_.src[0]; image += max_images)
      body(g, std::min(max_images, spec_.src[0] - image) * image_packs, image * in_pixels_ * channels_,
           image * out_pixels_ * channels_);
  }

  template <class T, int n>
  void global(T* dst, const T* src) const {
    GlobalForward<T, n> body{};
    body.pixels = int(in_pixels_);
    body.channels = int(channels_);
    body.packs = int(channels_) / n;
    body.tiles = (body.packs + tile_max - 1) / tile_max;
    body.tile = (body.packs + body.tiles - 1) / body.tiles;
    body.lanes = int(std::min<std::int64_t>(threads_max / body.tile, in_pixels_));
    body.share = g_.share;
    body.dst = dst;
    body.src = src;
    const int threads = (body.lanes * body.tile + 31) / 32 * 32;
    launch(context_, spec_.src[0] * body.tiles, threads,
           std::size_t(body.lanes) * std::size_t(body.tile * n) * sizeof(float), body);
  }

  PoolSpec spec_;
  LaunchContext context_;
  std::int64_t channels_, taps_ = 1, in_pixels_ = 1, out_pixels_ = 1;
  Geometry g_{};
};

}  // namespace

std::unique_ptr<Op> make_pool(const PoolSpec& spec, const LaunchContext& context) {
  return std::make_unique<Pool>(spec, context);
}

}  // namespace millrace::cuda
