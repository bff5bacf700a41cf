// Fusion level 3 for a convolution, with a pass over memory of its own in each direction. This is not faster on a CPU;
// tests compare the fused kernels of other backends with it.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

class NormalisedConv : public Op {
 public:
  NormalisedConv(const ConvSpec& spec, std::unique_ptr<Op> conv)
      : spec_(spec), conv_(std::move(conv)), at_(align64(conv_->memory_requirements().workspace)) {
    if (!spec_.produces_diff_sums)
      fail(Exit::config, "conv {}: only a convolution that computes the gradient sums of a norm can apply it",
           spec_.src.str());
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs = conv_->memory_requirements();
    needs.workspace = at_ + std::size_t(spec_.src.count()) * size_of(spec_.dtype);
    return needs;
  }
  std::string implementation() const override { return conv_->implementation() + ", norm and relu by threads"; }
  WorkShare work_share() const override { return conv_->work_share(); }
  void repack(const OpArgs& args) override { conv_->repack(args); }
  void forward(const OpArgs& args) override { conv_->forward(normalised(args)); }
  void backward(const OpArgs& args) override { conv_->backward(normalised(args)); }

 private:
  OpArgs normalised(const OpArgs& args) const {
    OpArgs of = args;
    of.src[0].data = static_cast<std::byte*>(args.workspace) + at_;
    const std::int64_t channels = spec_.src[-1];
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T *x = args.src[0].as<T>(), *scale = args.affine.as<T>(), *bias = scale + channels;
      T* to = of.src[0].as<T>();
      parallel_ranges(spec_.src.count() / channels, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t c = 0; c < channels; ++c) {
            const float y = load(scale + c) * load(x + r * channels + c) + load(bias + c);
            store(to + r * channels + c, y < 0 ? 0.0f : y);  // keeps NaN
          }
      });
    });
    return of;
  }

  ConvSpec spec_;
  std::unique_ptr<Op> conv_;
  std::size_t at_;
};

}  // namespace

std::unique_ptr<Op> make_normalised_conv(const ConvSpec& spec, std::unique_ptr<Op> conv) {
  return std::make_unique<NormalisedConv>(spec, std::move(conv));
}

}  // namespace millrace::cpu
