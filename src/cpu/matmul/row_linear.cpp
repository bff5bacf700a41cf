// A linear layer for one row, in inference: each output is the product of the row and a row of the weights as they are
// stored. Weights are read once and in order, so it is bound by the memory bandwidth. A product of matrices would first
// copy them into blocks, which takes longer.
#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES float dot(const float* a, const float* b, std::int64_t count) {
  float lanes[32] = {};  // several vectors, so that additions overlap
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32)
    for (int l = 0; l < 32; ++l) lanes[l] += a[i + l] * b[i + l];
  for (int l = 0; i + l < count; ++l) lanes[l] += a[i + l] * b[i + l];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

class RowLinear : public Op {
 public:
  explicit RowLinear(const LinearSpec& s)
      : in_(s.src.row_count()), out_(s.out_features), activate_(activation_kernels(s.activation)) {
    dispatch_dtype(s.dtype, [](auto) {});
    if (s.dtype != DType::f32) needs_.workspace = std::size_t(in_) * sizeof(float);
  }
  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override { return "threads, one row"; }

  void forward(const OpArgs& args) override {
    const float* const x = read_floats(args.src[0], 0, in_, static_cast<float*>(args.workspace));
    parallel_ranges(out_, 16, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; begin += tile_count) outputs(args, x, begin, std::min(tile_count, end - begin));
    });
  }
  void backward(const OpArgs&) override {}

 private:
  void outputs(const OpArgs& args, const float* x, std::int64_t first, std::int64_t count) const {
    Tile sums, activated, weights;
    for (std::int64_t o = 0; o < count; ++o) {
      float sum = args.weight[1] ? args.weight[1].as<float>()[first + o] : 0;
      for (std::int64_t i = 0; i < in_; i += tile_count) {
        const std::int64_t n = std::min(tile_count, in_ - i);
        sum += dot(x + i, read_floats(args.weight[0], (first + o) * in_ + i, n, weights), n);
      }
      sums[o] = sum;
    }
    if (activate_.forward) activate_.forward(activated, sums, count);
    from_float(element(args.dst, first), args.dst.dtype, activate_.forward ? activated : sums, count);
  }

  std::int64_t in_, out_;
  ActivationKernels activate_;
  MemoryRequirements needs_;
};

}  // namespace

std::unique_ptr<Op> make_row_linear(const LinearSpec& spec) { return std::make_unique<RowLinear>(spec); }

}  // namespace millrace::cpu
