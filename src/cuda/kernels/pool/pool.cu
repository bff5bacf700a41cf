// Max, average and global average pooling. The kernels handle packs of channels, or single channels if their number is
// not a multiple of the pack. The backward pass of global average pooling is that of average pooling with the whole
// image as the window.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/pool/pool_windows.hpp"

namespace millrace::cuda {
namespace {

using namespace pool;

constexpr int tile_max = 32, threads_max = 256;

class Pool : public Op {
 public:
  Pool(const PoolSpec& spec, const LaunchContext& context) : spec_(spec), context_(context), windows_(spec) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (is_max() && windows_.taps > 65535)
      fail(Exit::config, "pool: a window of {} positions is too large for max pooling. at most 65535", windows_.taps);
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
      windows_.by_images(n, windows_.out_pixels,
                         [&](const Geometry& g, std::int64_t count, std::int64_t in, std::int64_t out) {
                           if (is_max())
                             for_each(context_, count,
                                      MaxForward<T, n, Position>{g, dst + out, src + in, kept ? kept + out : nullptr});
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
      windows_.by_images(
          n, windows_.in_pixels, [&](const Geometry& g, std::int64_t count, std::int64_t in, std::int64_t out) {
            if (is_max())
              for_each(context_, count, Backward<T, n, Position, true>{g, dx + in, dy + out, kept + out});
            else
              for_each(context_, count, Backward<T, n, Position, false>{g, dx + in, dy + out, nullptr});
          });
    });
  }

 private:
  bool is_max() const { return spec_.kind == PoolSpec::Kind::max; }
  bool wide() const { return is_max() && windows_.taps > 256; }

  // Calls body(T{}, size of a pack, type of a position{}).
  template <class Body>
  void with_pack(const Body& body) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      constexpr int n = pack_size<decltype(zero)>;
      using One = std::integral_constant<int, 1>;
      if (wide())
        body(zero, One{}, std::uint16_t{});
      else if (windows_.channels % n == 0)
        body(zero, std::integral_constant<int, n>{}, std::uint8_t{});
      else
        body(zero, One{}, std::uint8_t{});
    });
  }

  template <class T, int n>
  void global(T* dst, const T* src) const {
    GlobalForward<T, n> body{};
    body.pixels = int(windows_.in_pixels);
    body.channels = int(windows_.channels);
    body.packs = int(windows_.channels) / n;
    body.tiles = (body.packs + tile_max - 1) / tile_max;
    body.tile = (body.packs + body.tiles - 1) / body.tiles;
    body.lanes = int(std::min<std::int64_t>(threads_max / body.tile, windows_.in_pixels));
    body.share = windows_.g.share;
    body.dst = dst;
    body.src = src;
    const int threads = (body.lanes * body.tile + 31) / 32 * 32;
    launch(context_, spec_.src[0] * body.tiles, threads,
           std::size_t(body.lanes) * std::size_t(body.tile * n) * sizeof(float), body);
  }

  PoolSpec spec_;
  LaunchContext context_;
  Windows windows_;
};

}  // namespace

std::unique_ptr<Op> make_pool(const PoolSpec& spec, const LaunchContext& context) {
  return std::make_unique<Pool>(spec, context);
}

}  // namespace millrace::cuda
