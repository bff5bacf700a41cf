// A batch norm whose residual has a norm of its own. The statistics of each source are those of batch_norm.cu. All
// other passes go over both sources together. So the result of the second norm is never stored, the gradient is read
// once for both norms, and the gradient behind the ReLU, which is that of both results, is never stored.
//
// Memory traffic, beside the statistics: forward reads both sources and writes dst and one bit for each element.
// Backward reads dy, both sources and the bits twice, and writes two gradients.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/batch_norm_launcher.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/merged_norm/dual_norm_kernels.hpp"

namespace millrace::cuda {
namespace {

using namespace dual_norm;

class DualNorm : public Op {
 public:
  DualNorm(const BatchNormSpec& spec, const LaunchContext& context)
      : spec_(spec),
        launcher_(context, millrace::batch_norm::layout_of(spec.src.count(), spec.src[-1])),
        l_(launcher_.l) {
    MR_CHECK(spec_.residual && !spec_.consumes_diff_sums && (relu() || spec_.activation == Activation::none));
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    needs.saved = 4 * launcher_.values_bytes() + (relu() ? std::size_t((l_.count + pack - 1) / pack) : 0);
    needs.workspace = 4 * launcher_.values_bytes() + std::max(launcher_.tree_bytes(launcher_.sum_slabs),
                                                              launcher_.tree_bytes(gradient_slabs(), gradient_sums));
    return needs;
  }

  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const bool train = spec_.mode == Mode::train;
      if (train) {
        statistics<T>(args, 0, spec_.consumes_sums ? args.sums : Tensor{}, args.stats);
        statistics<T>(args, 1, spec_.consumes_residual_sums ? args.residual_sums : Tensor{}, args.residual_stats);
      }
      const auto values = [&](int k) {
        const std::size_t own = std::size_t(2 * k), running = 4 + own;
        return NormArrays{args.weight[own].as<float>(),
                          args.weight[own + 1].as<float>(),
                          train ? mean(args, k) : args.weight[running].as<float>(),
                          train ? inverse(args, k) : args.weight[running + 1].as<float>(),
                          spec_.epsilon,
                          !train};
      };
      launcher_.apply<normalise_blocks>(NormaliseBoth<T>{l_,
                                                         args.dst.as<T>(),
                                                         {args.src[0].as<T>(), args.src[1].as<T>()},
                                                         {values(0), values(1)},
                                                         relu(),
                                                         bits(args)});
    });
  }

  void backward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      relu() ? gradients<T, true>(args) : gradients<T, false>(args);
    });
  }

 private:
  bool relu() const { return spec_.activation == Activation::relu; }
  // saved: mean and 1/std of both norms, bits. workspace: two values a channel for each norm (the shift; mean_g and
  // slope), and the tree of sums.
  float* values(void* memory, int index) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(memory) + std::size_t(index) * launcher_.values_bytes());
  }
  float* mean(const OpArgs& args, int k) const { return values(args.saved, 2 * k); }
  float* inverse(const OpArgs& args, int k) const { return values(args.saved, 2 * k + 1); }
  std::uint8_t* bits(const OpArgs& args) const {
    return spec_.mode == Mode::infer || !relu() ? nullptr : reinterpret_cast<std::uint8_t*>(values(args.saved, 4));
  }
  float* mean_g(const OpArgs& args, int k) const { return values(args.workspace, 2 * k); }
  float* slope(const OpArgs& args, int k) const { return values(args.workspace, 2 * k + 1); }
  void* tree_memory(const OpArgs& args) const { return values(args.workspace, 4); }
  int gradient_slabs() const { return launcher_.slabs(sums_blocks); }

  template <class T>
  void statistics(const OpArgs& args, int k, const Tensor& sums, const Tensor& stats) const {
    const Moments moments{l_.rows,
                          l_.channels,
                          spec_.epsilon,
                          mean(args, k),
                          inverse(args, k),
                          stats.as<float>(),
                          args.stats_mode == GradMode::add,
                          float(spec_.src[0]),
                          args.state ? &args.state->row_weight : nullptr};
    launcher_.statistics(args.src[std::size_t(k)].as<T>(), sums.as<float>(), tree_memory(args), mean_g(args, k),
                         moments);
  }

  GradientCoefficients coefficients(const OpArgs& args, int k) const {
    const std::size_t gamma = std::size_t(2 * k), beta = gamma + 1;
    return {l_.rows,
            inverse(args, k),
            mean_g(args, k),
            slope(args, k),
            args.diff_weight[gamma].as<float>(),
            args.diff_weight[beta].as<float>(),
            args.mode[gamma] == GradMode::add,
            args.mode[beta] == GradMode::add};
  }

  template <class T, bool masked>
  void gradients(const OpArgs& args) const {
    const BothInputs<T, masked> inputs{args.diff_dst.as<T>(), {args.src[0].as<T>(), args.src[1].as<T>()}, bits(args)};
    launcher_.sums<sums_blocks>(
        BothGradientSums<T, masked>{l_,
                                    inputs,
                                    {mean(args, 0), mean(args, 1)},
                                    launcher_.tree(tree_memory(args), gradient_slabs(), gradient_sums),
                                    {coefficients(args, 0), coefficients(args, 1)}});
    T* const dx[] = {args.diff_src[0].as<T>(), args.diff_src[1].as<T>()};
    if (!dx[0] && !dx[1]) return;
    const auto values = [&](int k) {
      return GradientArrays{args.weight[std::size_t(2 * k)].as<float>(), mean(args, k), inverse(args, k),
                            mean_g(args, k), slope(args, k)};
    };
    launcher_.apply<gradient_blocks>(GradientOfBoth<T, masked>{l_, {dx[0], dx[1]}, inputs, {values(0), values(1)}});
  }

  BatchNormSpec spec_;
  NormLauncher launcher_;
  const Layout& l_;
};

}  // namespace

std::unique_ptr<Op> make_dual_norm(const BatchNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<DualNorm>(spec, context);
}

}  // namespace millrace::cuda
