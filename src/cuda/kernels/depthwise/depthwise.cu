// Depthwise convolutions with kernels of millrace's own. cuDNN has fast engines for few shapes; its other engines
// compute many groups. Neither cuDNN nor these kernels have been timed on a GPU.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/depthwise/weight_gradient.hpp"
#include "cuda/kernels/kernels.hpp"
#include "millrace/base/align.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

using namespace depthwise;

constexpr std::int64_t most_strips = std::int64_t(1) << 30;
constexpr int most_parts = 127;          // so that their sums take one launch
constexpr int least_strips_of_lane = 4;  // of a part

// data: the gradient of the source, as a convolution of stride 1 of diff_dst with a turned kernel.
Geometry geometry_of(const ConvSpec& s, bool data) {
  Geometry g{};
  const Shape dst = s.dst();
  g.channels = int(s.src[-1]);
  g.taps = int(s.weight().row_count());
  for (int a = 0; a < s.window.rank; ++a) {
    Axis& axis = g.axis[3 - s.window.rank + a];
    const auto i = std::size_t(a);
    axis.from = int((data ? dst : s.src)[1 + a]);
    axis.to = int((data ? s.src : dst)[1 + a]);
    axis.kernel = int(s.window.kernel[i]);
    axis.dilation = int(s.window.dilation[i]);
    axis.stride = data ? 1 : int(s.window.stride[i]);
    axis.spread = data ? int(s.window.stride[i]) : 1;
    axis.pad = int(data ? s.window.dilation[i] * (s.window.kernel[i] - 1) - s.window.pad[i] : s.window.pad[i]);
  }
  for (Axis& axis : g.axis) axis.by_spread = Divider(axis.spread);
  return g;
}

// Divides the rows into strips and the channels into tiles.
void divide(Geometry& g, std::int64_t images, int pixels, int n) {
  const int extents[] = {g.axis[0].to, g.axis[1].to, (g.axis[2].to + pixels - 1) / pixels};
  std::int64_t strips = images;
  for (int a = 0; a < 3; ++a) {
    g.by_extent[a] = Divider(extents[a]);
    strips *= extents[a];
  }
  const int packs = g.channels / n;
  g.tiles = (packs + tile_lanes - 1) / tile_lanes;
  g.wide = (packs + g.tiles - 1) / g.tiles;
  g.high = threads / g.wide;
  g.by_tiles = Divider(g.tiles);
  g.by_wide = Divider(g.wide);
  if (strips * g.tiles >= most_strips)
    fail(Exit::config, "depthwise convolution: {} pieces of rows are too many for a kernel. take a smaller micro-batch",
         strips);
  g.strips = int(strips);
}

class DepthwiseConv : public Op {
 public:
  DepthwiseConv(const ConvSpec& s, const LaunchContext& context) : spec_(s), context_(context) {
    dispatch_dtype(s.dtype, [](auto) {});
    const Shape dst = s.dst();
    rows_ = dst.count() / dst[-1];
    weights_ = s.weight().count();
    with_products(geometry_of(s, false), [&](auto, const auto& g, int groups) { parts_ = parts_of(g, groups); });
    for (const bool data : {false, true}) {  // an error comes here, not in the middle of a step
      Geometry g = geometry_of(s, data);
      with_convolution(g, [&]<class Kernel>(Kernel*) { divide(g, s.src[0], Kernel::pixels, Kernel::channels); });
    }
    sums_at_ = align64(s.bias ? column_sums_bytes(rows_, dst[-1], context) : 0);
    part_sums_at_ = sums_at_ + align64(std::size_t(parts_ * weights_) * sizeof(float));
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::train) needs.workspace = part_sums_at_ + column_sums_bytes(parts_, weights_, context_);
    return needs;
  }
  std::string implementation() const override {
    return spec_.accumulates_diff_src ? "depthwise kernel, adding to the gradient" : "depthwise kernel";
  }

  void forward(const OpArgs& args) override {
    convolve(args.dst, args.src[0], args, false, args.weight[1] ? args.weight[1].as<float>() : nullptr);
  }

  void backward(const OpArgs& args) override {
    if (args.diff_weight[1])
      column_sums(context_, args.diff_weight[1].as<float>(), {args.diff_dst.data, spec_.dtype, rows_, spec_.src[-1]},
                  args.mode[1], args.workspace);
    if (args.diff_weight[0]) backward_weights(args);
    if (spec_.need_diff_src && args.diff_src[0]) convolve(args.diff_src[0], args.diff_dst, args, true, nullptr);
  }

 private:
  // Calls body(a null pointer to the functor) for the kernel that fits.
  template <class Body>
  void with_convolution(const Geometry& g, const Body& body) const {
    const Axis& x = g.axis[2];
    const bool plain = x.stride == 1 && x.spread == 1 && x.dilation == 1;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (g.channels % 2 != 0) return body(static_cast<ConvolvePixels<T, 1>*>(nullptr));
      if (!plain || g.taps > taps_of_chunk) return body(static_cast<ConvolvePixels<T, 2>*>(nullptr));
      if (x.kernel == 3) return body(static_cast<ConvolveRows<T, 3>*>(nullptr));
      if (x.kernel == 5) return body(static_cast<ConvolveRows<T, 5>*>(nullptr));
      if (x.kernel == 7) return body(static_cast<ConvolveRows<T, 7>*>(nullptr));
      body(static_cast<ConvolvePixels<T, 2>*>(nullptr));
    });
  }

  void convolve(const Tensor& to, const Tensor& from, const OpArgs& args, bool data, const float* bias) const {
    Geometry g = geometry_of(spec_, data);
    with_convolution(g, [&]<class Kernel>(Kernel*) {
      using T = std::remove_pointer_t<decltype(Kernel::to)>;
      constexpr int n = Kernel::channels;
      divide(g, spec_.src[0], Kernel::pixels, n);
      const Kernel kernel{
          g, to.as<T>(), from.as<T>(), args.weight[0].as<T>(), bias, data, data && spec_.accumulates_diff_src};
      const std::int64_t groups = (g.strips + g.high - 1) / g.high;
      const std::size_t staged = std::size_t(std::min(g.taps, taps_of_chunk) * g.wide * n) * sizeof(float);
      launch<threads, 3>(context_, groups * g.tiles, threads, staged, kernel);
    });
  }

  // Calls body(a null pointer to the functor, its geometry, groups of taps).
  template <class Body>
  void with_products(Geometry g, const Body& body) const {
    const Axis &x = g.axis[2], &y = g.axis[1];
    const bool plain = x.stride == 1 && x.dilation == 1 && x.kernel == y.kernel && g.channels % 2 == 0;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto call = [&]<class Kernel>(Kernel* kernel, int groups) {
        divide(g, spec_.src[0], Kernel::pixels, Kernel::channels);
        body(kernel, g, groups);
      };
      if (plain && x.kernel == 3) return call(static_cast<MultiplyRows<T, 3>*>(nullptr), g.axis[0].kernel);
      if (plain && x.kernel == 5) return call(static_cast<MultiplyRows<T, 5>*>(nullptr), g.axis[0].kernel);
      if (plain && x.kernel == 7) return call(static_cast<MultiplyRows<T, 7>*>(nullptr), g.axis[0].kernel);
      if (g.channels % 2 == 0) return call(static_cast<MultiplyTap<T, 2>*>(nullptr), g.taps);
      call(static_cast<MultiplyTap<T, 1>*>(nullptr), g.taps);
    });
  }

  // About two blocks for each multiprocessor.
  int parts_of(const Geometry& g, int groups) const {
    const std::int64_t wanted = 2 * std::int64_t(context_.multiprocessors) / (std::int64_t(g.tiles) * groups),
                       most = g.strips / (std::int64_t(g.high) * least_strips_of_lane);
    return int(std::clamp<std::int64_t>(std::min(wanted, most), 1, most_parts));
  }

  void backward_weights(const OpArgs& args) const {
    float* parts = reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + sums_at_);
    with_products(geometry_of(spec_, false), [&]<class Kernel>(Kernel*, const Geometry& g, int groups) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(Kernel::src)>>;
      const Kernel kernel{g, Divider(groups), parts, args.src[0].as<T>(), args.diff_dst.as<T>(), parts_};
      launch<threads, 1>(context_, std::int64_t(parts_) * groups * g.tiles, threads,
                         std::size_t(Kernel::written_sums * threads) * sizeof(float), kernel);
    });
    column_sums(context_, args.diff_weight[0].as<float>(), {parts, DType::f32, parts_, weights_}, args.mode[0],
                static_cast<std::byte*>(args.workspace) + part_sums_at_);
  }

  ConvSpec spec_;
  LaunchContext context_;
  std::int64_t rows_, weights_;
  int parts_ = 1;
  std::size_t sums_at_, part_sums_at_;  // of the parts, and of column_sums() over them, in the workspace
};

}  // namespace

std::unique_ptr<Op> make_depthwise_conv(const ConvSpec& spec, const LaunchContext& context) {
  return std::make_unique<DepthwiseConv>(spec, context);
}

}  // namespace millrace::cuda
