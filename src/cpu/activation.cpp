#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

class ActivationOp : public Op {
 public:
  explicit ActivationOp(const ActivationSpec& spec) : spec_(spec), kernels_(activation_kernels(spec.kind)) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "openmp"; }

  void forward(const OpArgs& args) override {
    if (spec_.kind == Activation::none) return parallel_copy(args.dst, args.src[0]);
    parallel_tiles(spec_.src.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile x, y;
      float* to = float_target(args.dst, begin, y);
      kernels_.forward(to, read_floats(args.src[0], begin, n, x), n);
      write_floats(args.dst, begin, n, to);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    if (spec_.kind == Activation::none) return parallel_copy(args.diff_src[0], args.diff_dst);
    const Tensor& kept = backward_reads_src(spec_.kind) ? args.src[0] : args.dst;
    parallel_tiles(spec_.src.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile dx, dy, value;
      float* to = float_target(args.diff_src[0], begin, dx);
      kernels_.backward(to, read_floats(args.diff_dst, begin, n, dy), read_floats(kept, begin, n, value), n);
      write_floats(args.diff_src[0], begin, n, to);
    });
  }

 private:
  ActivationSpec spec_;
  ActivationKernels kernels_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec) { return std::make_unique<ActivationOp>(spec); }

}  // namespace millrace::cpu
