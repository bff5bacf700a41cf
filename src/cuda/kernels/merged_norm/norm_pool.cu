// Batch norm, ReLU and max pooling in one. Only the pooled tensor is stored, and what the backward pass needs of it:
// for each result, the value of its maximum in the source and the position of that. The normalised tensor and its
// gradient, each of the size of the source, do not exist.
//
// Memory traffic, beside the statistics: forward reads x and writes dst, the maxima and a byte for each result.
// Backward reads dy and the bytes twice, the maxima and x once, and writes dx.
#include <algorithm>
#include <numeric>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/batch_norm_launcher.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/merged_norm/norm_pool_kernels.hpp"
#include "cuda/kernels/pool/pool_windows.hpp"

namespace millrace::cuda {
namespace {

using namespace norm_pool;
using batch_norm::NormLauncher;
using millrace::batch_norm::layout_of;

class NormPool : public Op {
 public:
  NormPool(const BatchNormSpec& spec, const LaunchContext& context)
      : spec_(spec),
        windows_(spec.max_pool()),
        whole_(context, layout_of(spec.src.count(), spec.src[-1])),
        pooled_(context, layout_of(spec.dst().count(), spec.src[-1])) {
    MR_CHECK(spec_.activation == Activation::relu && !spec_.residual && !spec_.consumes_diff_sums);
    MR_CHECK(windows_.taps <= BatchNormSpec::max_taps);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    needs.saved = maxima_at() + std::size_t(pooled_.l.count) * size_of(spec_.dtype);
    needs.workspace = 2 * whole_.values_bytes() +
                      std::max(whole_.tree_bytes(whole_.sum_slabs), pooled_.tree_bytes(pooled_.sum_slabs));
    return needs;
  }

  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    with_pack([&](auto zero, auto pack) {
      using T = decltype(zero);
      constexpr int n = pack();
      const bool train = spec_.mode == Mode::train;
      if (train) statistics<T>(args);
      const NormArrays norm{args.weight[0].as<float>(),
                            args.weight[1].as<float>(),
                            train ? mean(args) : args.weight[2].as<float>(),
                            train ? inverse(args) : args.weight[3].as<float>(),
                            spec_.epsilon,
                            !train};
      windows_.by_images(
          n, windows_.out_pixels, [&](const Geometry& g, std::int64_t count, std::int64_t in, std::int64_t out) {
            each(count,
                 NormaliseMax<T, n>{g, args.dst.as<T>() + out, args.src[0].as<T>() + in, norm,
                                    train ? taps(args) + out : nullptr, train ? maxima<T>(args) + out : nullptr});
          });
    });
  }

  void backward(const OpArgs& args) override {
    with_pack([&](auto zero, auto pack) {
      using T = decltype(zero);
      constexpr int n = pack();
      const T* dy = args.diff_dst.as<T>();
      pooled_.sums(PooledGradientSums<T>{
          pooled_.l,
          dy,
          maxima<T>(args),
          taps(args),
          mean(args),
          pooled_.tree(tree_memory(args), pooled_.sum_slabs),
          {whole_.l.rows, inverse(args), mean_g(args), slope(args), args.diff_weight[0].as<float>(),
           args.diff_weight[1].as<float>(), args.mode[0] == GradMode::add, args.mode[1] == GradMode::add}});
      T* const dx = args.diff_src[0].as<T>();
      if (!dx) return;
      const GradientArrays norm{args.weight[0].as<float>(), mean(args), inverse(args), mean_g(args), slope(args)};
      windows_.by_images(
          n, windows_.in_pixels, [&](const Geometry& g, std::int64_t count, std::int64_t in, std::int64_t out) {
            each(count, PooledGradient<T, n>{g, dx + in, args.src[0].as<T>() + in, dy + out, taps(args) + out, norm});
          });
    });
  }

 private:
  // Calls body(T{}, size of a pack).
  template <class Body>
  void with_pack(const Body& body) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      constexpr int n = pack_size<decltype(zero)>;
      if (windows_.channels % n == 0)
        body(zero, std::integral_constant<int, n>{});
      else
        body(zero, std::integral_constant<int, 1>{});
    });
  }

  // The threads of a block, or if a pixel has more packs than that, those of some blocks, handle whole pixels.
  template <class Body>
  void each(std::int64_t count, const Body& body) const {
    const int packs = body.g.packs;
    const int threads = packs <= launch_threads ? launch_threads / packs * packs : launch_threads;
    const std::int64_t unit = packs / std::gcd(packs, threads), needed = (count + threads - 1) / threads;
    const std::int64_t most = std::int64_t(whole_.context.multiprocessors) * Body::blocks;
    launch<launch_threads, Body::blocks>(whole_.context, (std::min(needed, most) + unit - 1) / unit * unit,
                                         launch_threads, 0,
                                         EachOfChannels<Body>{unsigned(count), unsigned(threads), body});
  }

  // saved: mean, 1/std, taps, maxima. workspace: two values a channel (the shift; mean_g and slope), the tree of sums.
  std::byte* saved(const OpArgs& args) const { return static_cast<std::byte*>(args.saved); }
  std::size_t taps_at() const { return 2 * whole_.values_bytes(); }
  std::size_t maxima_at() const { return taps_at() + align64(std::size_t(pooled_.l.count)); }
  float* mean(const OpArgs& args) const { return reinterpret_cast<float*>(saved(args)); }
  float* inverse(const OpArgs& args) const { return reinterpret_cast<float*>(saved(args) + whole_.values_bytes()); }
  std::uint8_t* taps(const OpArgs& args) const { return reinterpret_cast<std::uint8_t*>(saved(args) + taps_at()); }
  template <class T>
  T* maxima(const OpArgs& args) const {
    return reinterpret_cast<T*>(saved(args) + maxima_at());
  }
  float* workspace(const OpArgs& args, int k) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + std::size_t(k) * whole_.values_bytes());
  }
  float* mean_g(const OpArgs& args) const { return workspace(args, 0); }
  float* slope(const OpArgs& args) const { return workspace(args, 1); }
  void* tree_memory(const OpArgs& args) const { return workspace(args, 2); }

  template <class T>
  void statistics(const OpArgs& args) const {
    const batch_norm::Moments moments{whole_.l.rows,
                                      whole_.l.channels,
                                      spec_.epsilon,
                                      mean(args),
                                      inverse(args),
                                      args.stats.as<float>(),
                                      args.stats_mode == GradMode::add,
                                      float(spec_.src[0]),
                                      args.state ? &args.state->row_weight : nullptr};
    whole_.statistics(args.src[0].as<T>(), spec_.consumes_sums ? args.sums.as<float>() : nullptr, tree_memory(args),
                      mean_g(args), moments);
  }

  BatchNormSpec spec_;
  pool::Windows windows_;
  NormLauncher whole_, pooled_;  // over the source, and over the results
};

}  // namespace

std::unique_ptr<Op> make_norm_pool(const BatchNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<NormPool>(spec, context);
}

}  // namespace millrace::cuda
