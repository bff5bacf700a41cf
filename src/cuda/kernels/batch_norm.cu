// Batch norm, with two kernels in each direction. The first computes two sums for each channel, and mean, deviation and
// gradients from them. The second writes the result.
//
// Memory traffic: forward reads x twice and the residual once, and writes dst and one bit for each element. Backward
// reads dy, x and the bits twice, and writes the gradients. At fusion level 2, neighbouring convolutions produce the
// sums: then a kernel with a thread for each channel takes the place of the first, and no bits are stored.
#include <algorithm>
#include <limits>
#include <numeric>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/batch_norm_kernels.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"
#include "millrace/device/step_state.hpp"

namespace millrace::cuda {
namespace {

using namespace batch_norm;

constexpr int tile_max = 32, threads_max = 256;
constexpr int sum_blocks = 4, apply_blocks = 4;  // blocks for each multiprocessor, all of which are resident

Layout layout_of(std::int64_t count, std::int64_t channels) {
  Layout l{};
  l.count = count;
  l.channels = channels;
  l.rows = count / channels;
  l.width = std::lcm(channels, std::int64_t(pack));
  const std::int64_t lines = (count + l.width - 1) / l.width;
  if (lines > std::numeric_limits<int>::max() / 2)
    fail(Exit::config, "batch norm: an input of {} elements is too large. use a smaller micro-batch", count);
  l.whole_lines = int(count / l.width);
  l.lines = int(lines);
  const std::int64_t packs = l.width / pack;
  l.tiles = int((packs + tile_max - 1) / tile_max);
  l.tile = int((packs + l.tiles - 1) / l.tiles);
  l.lanes = std::min(threads_max / l.tile, l.lines);
  return l;
}

class BatchNorm : public Op {
 public:
  BatchNorm(const BatchNormSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    if (spec_.activation != Activation::none && spec_.activation != Activation::relu)
      fail(Exit::config, "batch norm: {} cannot be fused with it. use none or relu", name_of(spec_.activation));
    if (spec_.src.count() == 0) fail(Exit::config, "batch norm: input {} is empty", spec_.src.str());
    dispatch_dtype(spec_.dtype, [](auto) {});
    l_ = layout_of(spec_.src.count(), spec_.src[-1]);
    threads_ = (l_.lanes * l_.tile + 31) / 32 * 32;
    sum_slabs_ = slabs(sum_blocks);
    apply_slabs_ = slabs(apply_blocks);
    while (group_ * group_ < sum_slabs_) ++group_;
    groups_ = (sum_slabs_ + group_ - 1) / group_;
    const int counters = sum_slabs_ == 1 ? 1 : l_.tiles * (groups_ + 1);
    MR_CHECK(std::size_t(counters) * sizeof(unsigned) <= context_.counter_bytes());
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    if (!spec_.consumes_diff_sums) needs.saved = bits_at() + (relu() ? std::size_t((l_.count + pack - 1) / pack) : 0);
    needs.workspace = partial_at();
    if (!spec_.consumes_sums || !spec_.consumes_diff_sums)
      needs.workspace = grouped_at() + std::size_t(2 * groups_ * l_.width) * sizeof(double);
    return needs;
  }

  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const bool train = spec_.mode == Mode::train;
      if (train) statistics<T>(args);
      const float* mean = train ? moments(args, 0) : args.weight[2].as<float>();
      const float* scale = train ? moments(args, 1) : args.weight[3].as<float>();
      const auto apply = [&](auto has_residual) {
        launch(context_, std::int64_t(apply_slabs_) * l_.tiles, threads_, 0,
               Normalise<T, has_residual>{l_, args.dst.as<T>(), args.src[0].as<T>(), args.src[1].as<T>(),
                                          args.weight[0].as<float>(), args.weight[1].as<float>(), mean, scale,
                                          spec_.epsilon, !train, relu(), bits(args)});
      };
      spec_.residual ? apply(std::true_type{}) : apply(std::false_type{});
    });
  }

  void backward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      relu() && !spec_.consumes_diff_sums ? gradients<T, true>(args) : gradients<T, false>(args);
    });
  }

 private:
  bool relu() const { return spec_.activation == Activation::relu; }
  // The number of blocks that share the lines of a tile. Each block gets a few lines if there are enough.
  int slabs(int blocks) const {
    const int most = std::max(1, context_.multiprocessors * blocks / l_.tiles), few = l_.lanes * 4;
    return std::min(most, (l_.lines + few - 1) / few);
  }

  // saved: mean, 1/std, bits. workspace: two values a channel (the shift; mean_g and slope), sums of slabs and groups.
  std::size_t values_bytes() const { return align64(std::size_t(l_.channels) * sizeof(float)); }
  std::size_t bits_at() const { return 2 * values_bytes(); }
  std::size_t partial_at() const { return 2 * values_bytes(); }
  std::size_t grouped_at() const {
    return partial_at() + align64(std::size_t(2 * sum_slabs_ * l_.width) * sizeof(float));
  }
  float* moments(const OpArgs& args, int k) const {
    if (spec_.consumes_diff_sums) return args.moments.as<float>() + k * l_.channels;
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.saved) + k * values_bytes());
  }
  float* workspace(const OpArgs& args, int k) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + k * values_bytes());
  }
  SumTree tree(const OpArgs& args) const {
    std::byte* const memory = static_cast<std::byte*>(args.workspace);
    return {sum_slabs_,
            group_,
            groups_,
            reinterpret_cast<float*>(memory + partial_at()),
            reinterpret_cast<double*>(memory + grouped_at()),
            context_.counters};
  }
  std::uint8_t* bits(const OpArgs& args) const {
    if (spec_.mode == Mode::infer || !relu() || spec_.consumes_diff_sums) return nullptr;
    return static_cast<std::uint8_t*>(args.saved) + bits_at();
  }

  template <class Body>
  void launch_sums(const Body& body) const {
    launch(context_, std::int64_t(sum_slabs_) * l_.tiles, threads_, reduce_block_bytes(l_), body);
  }

  template <class T>
  void statistics(const OpArgs& args) const {
    const Moments of_sums{l_.rows,
                          l_.channels,
                          spec_.epsilon,
                          moments(args, 0),
                          moments(args, 1),
                          args.stats.as<float>(),
                          args.stats_mode == GradMode::add,
                          float(spec_.src[0]),
                          args.state ? &args.state->row_weight : nullptr};
    if (spec_.consumes_sums)
      for_each(context_, l_.channels, StatisticsFromSums{args.sums.as<float>(), of_sums});
    else
      launch_sums(Statistics<T>{l_, args.src[0].as<T>(), workspace(args, 0), tree(args), of_sums});
  }

  template <class T, bool masked>
  void gradients(const OpArgs& args) const {
    const GradientInputs<T, masked> inputs{args.diff_dst.as<T>(), args.src[0].as<T>(), bits(args)};
    const float *mean = moments(args, 0), *inverse = moments(args, 1);
    float *mean_g = workspace(args, 0), *slope = workspace(args, 1);
    const GradientCoefficients of_sums{l_.rows,
                                       inverse,
                                       mean_g,
                                       slope,
                                       args.diff_weight[0].as<float>(),
                                       args.diff_weight[1].as<float>(),
                                       args.mode[0] == GradMode::add,
                                       args.mode[1] == GradMode::add};
    if (spec_.consumes_diff_sums)
      for_each(context_, l_.channels, GradientsFromSums{args.diff_sums.as<float>(), l_.channels, of_sums});
    else
      launch_sums(GradientSums<T, masked>{l_, inputs, mean, tree(args), of_sums});
    T *dx = args.diff_src[0].as<T>(), *dr = args.diff_src[1].as<T>();
    if (!dx && !dr) return;
    launch(context_, std::int64_t(apply_slabs_) * l_.tiles, threads_, 0,
           Gradient<T, masked>{l_, dx, dr, inputs, args.weight[0].as<float>(), mean, inverse, mean_g, slope});
  }

  BatchNormSpec spec_;
  LaunchContext context_;
  Layout l_;
  int threads_, sum_slabs_, apply_slabs_;
  int group_ = 1, groups_ = 1;  // of SumTree
};

}  // namespace

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<BatchNorm>(spec, context);
}

}  // namespace millrace::cuda
