// Learned position embedding. A thread adds the gradients of its part of the weights over all rows, in their order.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES void add(float* __restrict dst, const float* __restrict a, const float* __restrict b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dst[i] = a[i] + b[i];
}
MR_TARGET_CLONES void add_to(float* __restrict sum, const float* __restrict values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += values[i];
}

class PositionEmbedding : public Op {
 public:
  explicit PositionEmbedding(const PositionEmbeddingSpec& spec) : rows_(spec.src[0]), count_(spec.src.row_count()) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "openmp"; }

  void forward(const OpArgs& args) override {
    each_tile([&](std::int64_t begin, std::int64_t n) {
      Tile weight, src, sum;
      const float* w = read_floats(args.weight[0], begin, n, weight);
      for (std::int64_t row = 0; row < rows_; ++row) {
        const std::int64_t at = row * count_ + begin;
        float* to = float_target(args.dst, at, sum);
        add(to, read_floats(args.src[0], at, n, src), w, n);
        write_floats(args.dst, at, n, to);
      }
    });
  }

  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) parallel_copy(args.diff_src[0], args.diff_dst);
    if (!args.diff_weight[0]) return;
    each_tile([&](std::int64_t begin, std::int64_t n) {
      Tile diff;
      float* sum = args.diff_weight[0].as<float>() + begin;
      if (args.mode[0] == GradMode::write) std::fill_n(sum, n, 0.0f);
      for (std::int64_t row = 0; row < rows_; ++row)
        add_to(sum, read_floats(args.diff_dst, row * count_ + begin, n, diff), n);
    });
  }

 private:
  // Calls body(begin, n) for each tile of the weights, on all threads.
  template <class Body>
  void each_tile(const Body& body) const {
    parallel_ranges(count_, tile_count, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; begin += tile_count) body(begin, std::min(tile_count, end - begin));
    });
  }

  std::int64_t rows_, count_;
};

}  // namespace

std::unique_ptr<Op> make_position_embedding(const PositionEmbeddingSpec& spec) {
  return std::make_unique<PositionEmbedding>(spec);
}

}  // namespace millrace::cpu
