#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

class ActivationOp : public Op {
 public:
  explicit ActivationOp(const ActivationSpec& spec) : spec_(spec) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    if (spec_.kind == Activation::none) return parallel_copy(args.dst, args.src[0]);
    activate(spec_.kind, args.dst, args.src[0]);
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    if (spec_.kind == Activation::none) return parallel_copy(args.diff_src[0], args.diff_dst);
    activate_backward(spec_.kind, args.diff_src[0], args.diff_dst,
                      backward_reads_src(spec_.kind) ? args.src[0] : args.dst);
  }

 private:
  ActivationSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec) { return std::make_unique<ActivationOp>(spec); }

}  // namespace millrace::cpu
