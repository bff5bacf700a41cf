// Learned position embedding. A thread adds the gradients of its part of the weights over all rows, in their order.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

class PositionEmbedding : public Op {
 public:
  explicit PositionEmbedding(const PositionEmbeddingSpec& spec)
      : rows_(spec.src[0]),
        count_(spec.dst().row_count()),
        token_(spec.class_token ? spec.channels() : 0),
        step_(spec.window > 0 ? spec.channels() : 0) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    const std::int64_t first = step_ > 0 ? std::int64_t(args.state->position) * step_ : 0;
    each_tile(token_, count_, [&](std::int64_t begin, std::int64_t n) {
      Tile weight, src, sum;
      const float* w = read_floats(args.weight[0], first + begin, n, weight);
      for (std::int64_t row = 0; row < rows_; ++row) {
        const std::int64_t at = row * count_ + begin;
        float* to = float_target(args.dst, at, sum);
        add(to, read_floats(args.src[0], row * (count_ - token_) + begin - token_, n, src), w, n);
        write_floats(args.dst, at, n, to);
      }
    });
    each_tile(0, token_, [&](std::int64_t begin, std::int64_t n) {
      Tile weight, sum;
      const float* w = read_floats(args.weight[0], begin, n, weight);
      for (std::int64_t row = 0; row < rows_; ++row) {
        float* to = float_target(args.dst, row * count_ + begin, sum);
        add(to, args.weight[1].as<float>() + begin, w, n);
        write_floats(args.dst, row * count_ + begin, n, to);
      }
    });
  }

  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) copy_rows(args.diff_src[0], args.diff_dst);
    if (!args.diff_weight[0]) return;
    each_tile(0, count_, [&](std::int64_t begin, std::int64_t n) {
      Tile diff;
      float* sum = args.diff_weight[0].as<float>() + begin;
      if (args.mode[0] == GradMode::write) std::fill_n(sum, n, 0.0f);
      for (std::int64_t row = 0; row < rows_; ++row)
        add(sum, sum, read_floats(args.diff_dst, row * count_ + begin, n, diff), n);
    });
    if (args.diff_weight[1]) std::copy_n(args.diff_weight[0].as<float>(), token_, args.diff_weight[1].as<float>());
  }

 private:
  // Calls body(begin, n) for each tile of the elements [first, last) of the weights, on all threads.
  template <class Body>
  void each_tile(std::int64_t first, std::int64_t last, const Body& body) const {
    parallel_ranges(last - first, tile_count, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; begin += tile_count) body(first + begin, std::min(tile_count, end - begin));
    });
  }
  void copy_rows(const Tensor& to, const Tensor& from) const {
    if (token_ == 0) return parallel_copy(to, from);
    const std::int64_t size = count_ - token_;
    parallel_ranges(rows_, std::max<std::int64_t>(1, 8 * tile_count / size), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        std::copy(element(from, row * count_ + token_), element(from, (row + 1) * count_), element(to, row * size));
    });
  }

  // count: elements of a row of dst; token: of the class token, or 0; step: weights from one position to the next, if
  // the positions do not begin at 0.
  std::int64_t rows_, count_, token_, step_;
};

}  // namespace

std::unique_ptr<Op> make_position_embedding(const PositionEmbeddingSpec& spec) {
  return std::make_unique<PositionEmbedding>(spec);
}

}  // namespace millrace::cpu
