// Batch norm, with two kernels in each direction. The first computes two sums for each channel, and mean, deviation and
// gradients from them. The second writes the result.
//
// Memory traffic: forward reads x twice and the residual once, and writes dst and one bit for each element. Backward
// reads dy, x and the bits twice, and writes the gradients. At fusion level 2, neighbouring convolutions produce the
// sums: then a kernel with a thread for each channel takes the place of the first, and no bits are stored. At level 3,
// the next convolution does the work of the second kernel in forward. Tensors that fit on the chip are read once, by a
// kernel that does the work of both (batch_norm_resident.hpp).
//
// If the norm is synchronised, the first kernel stores what the ranks exchange, and a kernel with a thread for each
// channel combines that of all ranks.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/batch_norm_launcher.hpp"
#include "cuda/kernels/batch_norm_resident.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/rank_exchange.hpp"

namespace millrace::cuda {
namespace {

using namespace batch_norm;

using millrace::batch_norm::OnChipMemory, millrace::batch_norm::ResidentPlan;
constexpr int threads_max = millrace::batch_norm::threads_max;
constexpr int resident_blocks_wanted = millrace::batch_norm::resident_blocks;
constexpr int apply_blocks = 4;  // for each multiprocessor, all of which are resident

struct Zeros {
  double* values;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const { values[i] = 0; }
};

class BatchNorm : public Op {
 public:
  BatchNorm(const BatchNormSpec& spec, const LaunchContext& context)
      : spec_(checked(spec)),
        launcher_(context, millrace::batch_norm::layout_of(spec.src.count(), spec.src[-1])),
        l_(launcher_.l) {
    plan_resident_kernels();
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    if (!spec_.consumes_diff_sums) needs.saved = bits_at() + (relu() ? std::size_t((l_.count + pack - 1) / pack) : 0);
    needs.workspace = 2 * launcher_.values_bytes();
    if (!spec_.consumes_sums || !spec_.consumes_diff_sums) needs.workspace += launcher_.tree_bytes(launcher_.sum_slabs);
    return needs;
  }

  std::string implementation() const override {
    if (spec_.produces_affine) return "kernel, applied by the next convolution";
    if (!forward_.fits && !backward_.fits) return "kernel";
    return std::string("kernel, one ") + (!backward_.fits  ? "forward"
                                          : !forward_.fits ? "backward"
                                                           : "in each direction");
  }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const bool train = spec_.mode == Mode::train;
      if (args.without_rows) return exchange_nothing(args);
      if (train && !forward_.fits) statistics<T>(args);
      if (spec_.produces_affine) return;
      const float* mean = train ? moments(args, 0) : args.weight[2].as<float>();
      const float* scale = train ? moments(args, 1) : args.weight[3].as<float>();
      const auto apply = [&](auto has_residual) {
        const Normalise<T, has_residual> body{l_,
                                              args.dst.as<T>(),
                                              args.src[0].as<T>(),
                                              args.src[1].as<T>(),
                                              args.weight[0].as<float>(),
                                              args.weight[1].as<float>(),
                                              mean,
                                              scale,
                                              spec_.epsilon,
                                              !train,
                                              relu(),
                                              bits(args)};
        if (forward_.fits)
          launch_resident(forward_, ResidentForward<T, has_residual>{sums_of_src<T>(args, forward_.slabs), body,
                                                                     std::size_t(forward_.kept_at)});
        else
          launcher_.apply<apply_blocks>(body);
      };
      spec_.residual ? apply(std::true_type{}) : apply(std::false_type{});
    });
  }

  void backward(const OpArgs& args) override {
    if (args.without_rows) return exchange_nothing(args);
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      relu() && !spec_.consumes_diff_sums ? gradients<T, true>(args) : gradients<T, false>(args);
    });
  }

 private:
  static const BatchNormSpec& checked(const BatchNormSpec& spec) {
    const bool relu = spec.activation == Activation::relu;
    if (spec.activation != Activation::none && !relu)
      fail(Exit::config, "batch norm: {} cannot be fused with it. use none or relu", name_of(spec.activation));
    if (spec.src.count() == 0) fail(Exit::config, "batch norm: input {} is empty", spec.src.str());
    dispatch_dtype(spec.dtype, [](auto) {});
    if (spec.produces_affine && (spec.dtype != DType::f16 || !spec.consumes_diff_sums || !relu || spec.residual))
      fail(Exit::config, "batch norm {}: the next convolution cannot apply it in {}", spec.src.str(),
           name_of(spec.dtype));
    return spec;
  }
  bool relu() const { return spec_.activation == Activation::relu; }

  void plan_resident_kernels() {
    const LaunchContext& context = launcher_.context;
    if (context.shared_bytes == 0 || spec_.mode == Mode::infer || spec_.synchronised) return;
    const OnChipMemory memory{context.multiprocessors, context.shared_bytes};
    const int element = int(size_of(spec_.dtype));
    if (!spec_.consumes_sums && !spec_.produces_affine) forward_ = plan_forward(l_, element, spec_.residual, memory);
    if (!spec_.consumes_diff_sums) backward_ = plan_backward(l_, element, memory);
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (forward_.fits)
        spec_.residual ? check_resident<ResidentForward<T, true>>(forward_)
                       : check_resident<ResidentForward<T, false>>(forward_);
      if (backward_.fits)
        relu() ? check_resident<ResidentBackward<T, true>>(backward_)
               : check_resident<ResidentBackward<T, false>>(backward_);
    });
  }
  template <class Body>
  void check_resident(const ResidentPlan& plan) const {
    const int blocks = resident_blocks<threads_max, resident_blocks_wanted>(
        launcher_.threads, std::size_t(plan.shared_bytes), static_cast<const Body*>(nullptr));
    if (blocks < resident_blocks_wanted)
      fail(Exit::config, "cuda.persistent_norm: the GPU has room for {} blocks of the norm of {}. switch it off",
           blocks, spec_.src.str());
  }
  template <class Body>
  void launch_resident(const ResidentPlan& plan, const Body& body) const {
    launch_together<threads_max, resident_blocks_wanted>(launcher_.context, std::int64_t(plan.slabs) * l_.tiles,
                                                         launcher_.threads, std::size_t(plan.shared_bytes), body);
  }

  // saved: mean, 1/std, bits. workspace: two values a channel (the shift; mean_g and slope), the tree of sums.
  std::size_t bits_at() const { return 2 * launcher_.values_bytes(); }
  float* moments(const OpArgs& args, int k) const {
    if (spec_.consumes_diff_sums) return args.moments.as<float>() + k * l_.channels;
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.saved) + k * launcher_.values_bytes());
  }
  float* workspace(const OpArgs& args, int k) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + k * launcher_.values_bytes());
  }
  SumTree tree(const OpArgs& args, int slabs) const { return launcher_.tree(workspace(args, 2), slabs); }
  std::uint8_t* bits(const OpArgs& args) const {
    if (spec_.mode == Mode::infer || !relu() || spec_.consumes_diff_sums) return nullptr;
    return static_cast<std::uint8_t*>(args.saved) + bits_at();
  }

  NormAffine affine(const OpArgs& args) const {
    if (!spec_.produces_affine) return {};
    return {args.weight[0].as<float>(), args.weight[1].as<float>(), args.affine.as<f16>()};
  }

  // What synchronised norms exchange; null: nothing.
  RankExchange* exchange(const OpArgs& args) const { return spec_.synchronised ? args.ranks : nullptr; }
  std::int64_t exchanged() const { return ChannelPairs<double>::count(l_.channels); }
  // use: a functor of PairsOfRanks and `of`, for each channel.
  template <class Use, class Of>
  void combine(RankExchange& ranks, RankExchange::Pass pass, const Of& of) const {
    ranks.all_gather(exchanged(), pass);
    for_each(launcher_.context, l_.channels, Use{{ranks.values(), l_.channels, ranks.ranks()}, of});
  }
  void exchange_nothing(const OpArgs& args) const {
    for_each(launcher_.context, exchanged(), Zeros{args.ranks->own(exchanged())});
    args.ranks->all_gather(exchanged(), RankExchange::Pass::without_rows);
  }

  Moments from_sums(const OpArgs& args) const {
    RankExchange* const ranks = exchange(args);
    return {l_.rows,
            l_.channels,
            spec_.epsilon,
            moments(args, 0),
            moments(args, 1),
            args.stats.as<float>(),
            args.stats_mode == GradMode::add,
            float(spec_.src[0]),
            args.state ? &args.state->row_weight : nullptr,
            affine(args),
            ranks ? ranks->own(exchanged()) : nullptr};
  }
  template <class T>
  Statistics<T> sums_of_src(const OpArgs& args, int slabs) const {
    return {l_, args.src[0].as<T>(), workspace(args, 0), tree(args, slabs), from_sums(args)};
  }
  template <class T>
  void statistics(const OpArgs& args) const {
    launcher_.statistics(args.src[0].as<T>(), spec_.consumes_sums ? args.sums.as<float>() : nullptr, workspace(args, 2),
                         workspace(args, 0), from_sums(args));
    if (RankExchange* const ranks = exchange(args))
      combine<MomentsOfRanks>(*ranks, RankExchange::Pass::forward, from_sums(args));
  }

  template <class T, bool masked>
  void gradients(const OpArgs& args) const {
    const GradientInputs<T, masked> inputs{args.diff_dst.as<T>(), args.src[0].as<T>(), bits(args)};
    const float *mean = moments(args, 0), *inverse = moments(args, 1);
    float *mean_g = workspace(args, 0), *slope = workspace(args, 1);
    RankExchange* const ranks = exchange(args);
    const GradientCoefficients of_sums{l_.rows,
                                       inverse,
                                       mean_g,
                                       slope,
                                       args.diff_weight[0].as<float>(),
                                       args.diff_weight[1].as<float>(),
                                       args.mode[0] == GradMode::add,
                                       args.mode[1] == GradMode::add,
                                       ranks ? ranks->own(exchanged()) : nullptr,
                                       l_.channels};
    T *dx = args.diff_src[0].as<T>(), *dr = args.diff_src[1].as<T>();
    const Gradient<T, masked> apply{l_, dx, dr, inputs, args.weight[0].as<float>(), mean, inverse, mean_g, slope};
    const auto sums = [&](int slabs) { return GradientSums<T, masked>{l_, inputs, mean, tree(args, slabs), of_sums}; };
    if (backward_.fits && (dx || dr)) {
      const std::size_t at = std::size_t(backward_.kept_at), one = (std::size_t(backward_.shared_bytes) - at) / 2;
      return launch_resident(backward_, ResidentBackward<T, masked>{sums(backward_.slabs), apply, at, at + one});
    }
    if (spec_.consumes_diff_sums)
      for_each(launcher_.context, l_.channels, GradientsFromSums{args.diff_sums.as<float>(), l_.channels, of_sums});
    else
      launcher_.sums(sums(launcher_.sum_slabs));
    if (ranks) combine<GradientsOfRanks>(*ranks, RankExchange::Pass::backward, of_sums);
    if (dx || dr) launcher_.apply<apply_blocks>(apply);
  }

  BatchNormSpec spec_;
  NormLauncher launcher_;
  const Layout& l_;
  ResidentPlan forward_, backward_;
};

}  // namespace

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<BatchNorm>(spec, context);
}

}  // namespace millrace::cuda
