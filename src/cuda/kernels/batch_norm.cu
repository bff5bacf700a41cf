// Batch norm, with two kernels in each direction. The first computes two sums for each channel, and mean, deviation and
// gradients from them. The second writes the result.
//
// Memory traffic: forward reads x twice and the residual once, and writes dst and one bit for each element. Backward
// reads dy, x and the bits twice, and writes the gradients. At fusion level 2, neighbouring convolutions produce the
// sums: then a kernel with a thread for each channel takes the place of the first, and no bits are stored. At level 3,
// the next convolution does the work of the second kernel in forward. Tensors that fit on the chip are read once, by a
// kernel that does the work of both (batch_norm_resident.hpp).
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/batch_norm_kernels.hpp"
#include "cuda/kernels/batch_norm_resident.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"
#include "millrace/device/step_state.hpp"

namespace millrace::cuda {
namespace {

using namespace batch_norm;

using millrace::batch_norm::OnChipMemory, millrace::batch_norm::ResidentPlan;
constexpr int threads_max = millrace::batch_norm::threads_max;
constexpr int resident_blocks_wanted = millrace::batch_norm::resident_blocks;
constexpr int sum_blocks = 4, apply_blocks = 4;  // blocks for each multiprocessor, all of which are resident

class BatchNorm : public Op {
 public:
  BatchNorm(const BatchNormSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    if (spec_.activation != Activation::none && spec_.activation != Activation::relu)
      fail(Exit::config, "batch norm: {} cannot be fused with it. use none or relu", name_of(spec_.activation));
    if (spec_.src.count() == 0) fail(Exit::config, "batch norm: input {} is empty", spec_.src.str());
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (spec_.produces_affine && (spec_.dtype != DType::f16 || !spec_.consumes_diff_sums || !relu() || spec_.residual))
      fail(Exit::config, "batch norm {}: the next convolution cannot apply it in {}", spec_.src.str(),
           name_of(spec_.dtype));
    l_ = millrace::batch_norm::layout_of(spec_.src.count(), spec_.src[-1]);
    threads_ = l_.threads();
    sum_slabs_ = l_.slabs(context_.multiprocessors * sum_blocks);
    apply_slabs_ = l_.slabs(context_.multiprocessors * apply_blocks);
    const int counters = sum_slabs_ == 1 ? 1 : l_.tiles * (groups_of(sum_slabs_) + 1);
    MR_CHECK(counters <= context_.multiprocessors * LaunchContext::counters_per_multiprocessor);
    plan_resident_kernels();
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    if (!spec_.consumes_diff_sums) needs.saved = bits_at() + (relu() ? std::size_t((l_.count + pack - 1) / pack) : 0);
    needs.workspace = partial_at();
    if (!spec_.consumes_sums || !spec_.consumes_diff_sums)
      needs.workspace = grouped_at() + std::size_t(2 * groups_of(sum_slabs_) * l_.width) * sizeof(double);
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
          launch(context_, std::int64_t(apply_slabs_) * l_.tiles, threads_, 0, body);
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

  void plan_resident_kernels() {
    if (context_.shared_bytes == 0 || spec_.mode == Mode::infer) return;
    const OnChipMemory memory{context_.multiprocessors, context_.shared_bytes};
    const int element = int(size_of(spec_.dtype));
    if (!spec_.consumes_sums && !spec_.produces_affine)
      forward_ = plan_forward(l_, element, spec_.residual, memory);
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
    const int blocks = resident_blocks<threads_max, resident_blocks_wanted>(threads_, std::size_t(plan.shared_bytes),
                                                                            static_cast<const Body*>(nullptr));
    if (blocks < resident_blocks_wanted)
      fail(Exit::config, "cuda.persistent_norm: the GPU has room for {} blocks of the norm of {}. switch it off",
           blocks, spec_.src.str());
  }
  template <class Body>
  void launch_resident(const ResidentPlan& plan, const Body& body) const {
    launch_together<threads_max, resident_blocks_wanted>(context_, std::int64_t(plan.slabs) * l_.tiles, threads_,
                                                         std::size_t(plan.shared_bytes), body);
  }

  // The slabs of a group: as many as there are groups.
  static int group_of(int slabs) {
    int group = 1;
    while (group * group < slabs) ++group;
    return group;
  }
  static int groups_of(int slabs) { return (slabs + group_of(slabs) - 1) / group_of(slabs); }

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
  SumTree tree(const OpArgs& args, int slabs) const {
    std::byte* const memory = static_cast<std::byte*>(args.workspace);
    return {slabs,
            group_of(slabs),
            groups_of(slabs),
            reinterpret_cast<float*>(memory + partial_at()),
            reinterpret_cast<double*>(memory + grouped_at()),
            context_.counters,
            context_.gates()};
  }
  std::uint8_t* bits(const OpArgs& args) const {
    if (spec_.mode == Mode::infer || !relu() || spec_.consumes_diff_sums) return nullptr;
    return static_cast<std::uint8_t*>(args.saved) + bits_at();
  }

  NormAffine affine(const OpArgs& args) const {
    if (!spec_.produces_affine) return {};
    return {args.weight[0].as<float>(), args.weight[1].as<float>(), args.affine.as<f16>()};
  }

  template <class Body>
  void launch_sums(const Body& body) const {
    launch(context_, std::int64_t(sum_slabs_) * l_.tiles, threads_, reduce_block_bytes(l_), body);
  }

  Moments from_sums(const OpArgs& args) const {
    return {l_.rows,
            l_.channels,
            spec_.epsilon,
            moments(args, 0),
            moments(args, 1),
            args.stats.as<float>(),
            args.stats_mode == GradMode::add,
            float(spec_.src[0]),
            args.state ? &args.state->row_weight : nullptr,
            affine(args)};
  }
  template <class T>
  Statistics<T> sums_of_src(const OpArgs& args, int slabs) const {
    return {l_, args.src[0].as<T>(), workspace(args, 0), tree(args, slabs), from_sums(args)};
  }
  template <class T>
  void statistics(const OpArgs& args) const {
    if (spec_.consumes_sums)
      for_each(context_, l_.channels, StatisticsFromSums{args.sums.as<float>(), from_sums(args)});
    else
      launch_sums(sums_of_src<T>(args, sum_slabs_));
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
    T *dx = args.diff_src[0].as<T>(), *dr = args.diff_src[1].as<T>();
    const Gradient<T, masked> apply{l_, dx, dr, inputs, args.weight[0].as<float>(), mean, inverse, mean_g, slope};
    const auto sums = [&](int slabs) { return GradientSums<T, masked>{l_, inputs, mean, tree(args, slabs), of_sums}; };
    if (backward_.fits && (dx || dr)) {
      const std::size_t at = std::size_t(backward_.kept_at), one = (std::size_t(backward_.shared_bytes) - at) / 2;
      return launch_resident(backward_, ResidentBackward<T, masked>{sums(backward_.slabs), apply, at, at + one});
    }
    if (spec_.consumes_diff_sums)
      for_each(context_, l_.channels, GradientsFromSums{args.diff_sums.as<float>(), l_.channels, of_sums});
    else
      launch_sums(sums(sum_slabs_));
    if (dx || dr) launch(context_, std::int64_t(apply_slabs_) * l_.tiles, threads_, 0, apply);
  }

  BatchNormSpec spec_;
  LaunchContext context_;
  Layout l_;
  int threads_, sum_slabs_, apply_slabs_;
  ResidentPlan forward_, backward_;
};

}  // namespace

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<BatchNorm>(spec, context);
}

}  // namespace millrace::cuda
