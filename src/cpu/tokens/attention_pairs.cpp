// The products of attention in bf16 for AVX-512 with bf16. What causal attention excludes is left out, tile by tile.
// Along the depth of each product, elements lie in pairs: of neighbouring features, keys or queries. An odd number of
// keys or queries is padded with 0.
#include <algorithm>

#include "cpu/common/ops.hpp"
#include "cpu/matmul/pair_product.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/tokens/panel_products.hpp"

namespace millrace::cpu::attention {
namespace {

using matmul::interleave, matmul::multiply_pairs, matmul::pair_columns, matmul::pair_rows, matmul::Start;

std::int64_t pairs_of(std::int64_t count) { return (count + 1) / 2; }

class PairProducts : public PanelProducts<bf16> {
 public:
  PairProducts(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) : PanelProducts(s) {
    const std::int64_t columns = whole_panels(size_);
    reserve_panels(size_ * whole_panels(positions_), 2 * pairs_of(positions_) * columns, queries,
                   2 * pairs_of(queries) * columns);
    factors_at_ = reserve(2 * pairs_of(queries) * ScoreBlock::row_width(keys), train_);
  }
  std::string name() const override { return "tiles:avx512_bf16"; }

 private:
  static std::int64_t whole_panels(std::int64_t columns) {
    return (columns + pair_columns - 1) / pair_columns * pair_columns;
  }

  // Panels of keys, with the pairs of features as the depth: pairs are moved like float32.
  void pack_turned(std::size_t to, const bf16* from) const override {
    const std::int64_t depth = size_ / 2, stride = stride_ / 2;
    for (std::int64_t c = 0; c < positions_; c += pair_columns)
      matmul::wide_tiles.pack(reinterpret_cast<float*>(part(to)) + c * depth,
                              reinterpret_cast<const float*>(from) + c * stride, {1, stride}, depth,
                              std::min(pair_columns, positions_ - c));
  }
  // Panels of features, with the pairs of rows as the depth.
  void pack_rows(std::size_t at, const bf16* from, std::int64_t stride, std::int64_t rows) const override {
    const std::int64_t depth = pairs_of(rows);
    for (std::int64_t c = 0; c < size_; c += pair_columns) {
      bf16* to = part(at) + 2 * c * depth;
      const std::int64_t columns = std::min(pair_columns, size_ - c);
      for (std::int64_t r = 0; r < rows; r += 2, to += 2 * pair_columns) {
        const bf16* const first = from + r * stride + c;
        interleave(to, first, r + 1 < rows ? first + stride : nullptr, columns);
        std::fill(to + 2 * columns, to + 2 * pair_columns, bf16{});
      }
    }
  }
  void against_keys(const ScoreBlock& b, std::size_t rows, std::size_t turned, float* to) const override {
    for (std::int64_t c = 0; c < b.keys; c += pair_columns)
      each_tile(b.queries, pair_rows, [&](std::int64_t q, std::int64_t count) {
        if (b.visible(q + count - 1) > c)
          multiply_pairs({part(rows) + q * size_, size_, 2, count, size_ / 2}, part(turned) + (b.first_key + c) * size_,
                         Start::zero, to + q * b.row_width() + c, b.row_width(), std::min(pair_columns, b.keys - c));
      });
  }
  void over_keys(const ScoreBlock& b, const void* factors, std::size_t values, float* to) const override {
    for (std::int64_t c = 0; c < size_; c += pair_columns)
      each_tile(b.queries, pair_rows, [&](std::int64_t q, std::int64_t count) {
        const std::int64_t pairs = pairs_of(b.visible(q + count - 1));
        if (pairs > 0)
          multiply_pairs({static_cast<const bf16*>(factors) + q * b.row_width(), b.row_width(), 2, count, pairs},
                         part(values) + 2 * c * pairs_of(positions_) + b.first_key * pair_columns, Start::dst,
                         to + q * size_ + c, size_, std::min(pair_columns, size_ - c));
      });
  }
  void over_queries(const ScoreBlock& b, const void* factors, std::size_t values, float* to) const override {
    const std::int64_t width = b.row_width(), pairs = pairs_of(b.queries);
    bf16* const paired = part(factors_at_);
    for (std::int64_t q = 0; q < b.queries; q += 2) {
      const bf16* const first = static_cast<const bf16*>(factors) + q * width;
      interleave(paired + q * width, first, q + 1 < b.queries ? first + width : nullptr, width);
    }
    for (std::int64_t c = 0; c < size_; c += pair_columns)
      each_tile(b.keys, pair_rows, [&](std::int64_t k, std::int64_t count) {
        const std::int64_t first = b.causal ? std::max<std::int64_t>(0, b.first_key + k - b.first_query) / 2 : 0;
        if (first < pairs)
          multiply_pairs({paired + 2 * (first * width + k), 2, 2 * width, count, pairs - first},
                         part(values) + 2 * (c * pairs + first * pair_columns), Start::dst, to + k * size_ + c, size_,
                         std::min(pair_columns, size_ - c));
      });
  }

  std::size_t factors_at_;
};

}  // namespace

std::unique_ptr<HeadProducts> make_pair_products(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) {
  if (s.dtype != DType::bf16 || s.head_size() % 2 != 0 || !onednn::has_pairs()) return nullptr;
  return std::make_unique<PairProducts>(s, queries, keys);
}

}  // namespace millrace::cpu::attention
