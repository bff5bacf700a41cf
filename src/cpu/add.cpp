#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

// dst may be one of the operands, because the gradients of a value with two readers are added in place.
MR_TARGET_CLONES void add(float* dst, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dst[i] = a[i] + b[i];
}

class Add : public Op {
 public:
  explicit Add(const AddSpec& spec) : spec_(spec) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    parallel_tiles(spec_.src.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile a, b, sum;
      float* to = float_target(args.dst, begin, sum);
      add(to, read_floats(args.src[0], begin, n, a), read_floats(args.src[1], begin, n, b), n);
      write_floats(args.dst, begin, n, to);
    });
  }

  void backward(const OpArgs& args) override {
    for (int i = 0; i < 2; ++i)
      if (args.diff_src[i] && args.diff_src[i].data != args.diff_dst.data)
        parallel_copy(args.diff_src[i], args.diff_dst);
  }

 private:
  AddSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_add(const AddSpec& spec) { return std::make_unique<Add>(spec); }

}  // namespace millrace::cpu
