// The products of attention in bf16 for AVX-512 with bf16. As in TileProducts, K and V of a head lie in panels that all
// blocks of queries read, and what causal attention excludes is left out, tile by tile. Along the depth of each
// product, elements lie in pairs: of neighbouring features, keys or queries. An odd number of keys or queries is padded
// with 0.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cpu/common/ops.hpp"
#include "cpu/matmul/pair_product.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/tokens/attention_products.hpp"

namespace millrace::cpu::attention {
namespace {

using matmul::interleave, matmul::multiply_pairs, matmul::pair_columns, matmul::pair_rows, matmul::Start;

std::int64_t pairs_of(std::int64_t count) { return (count + 1) / 2; }

class PairProducts : public HeadProducts {
 public:
  PairProducts(const AttentionSpec& s, std::int64_t queries, std::int64_t keys)
      : positions_(s.positions()), size_(s.head_size()), stride_(s.src[-1]), out_(s.heads * size_) {
    const bool train = s.mode == Mode::train;
    const auto reserve = [&](std::int64_t pairs, std::int64_t columns, bool needed) {
      const std::size_t begin = bytes_;
      if (needed) bytes_ += align64(std::size_t(2 * pairs * columns) * sizeof(bf16));
      return begin;
    };
    const std::int64_t key_columns = whole_panels(positions_), columns = whole_panels(size_);
    keys_turned_at_ = reserve(size_ / 2, key_columns, true);
    values_at_ = reserve(pairs_of(positions_), columns, true);
    values_turned_at_ = reserve(size_ / 2, key_columns, train);
    keys_at_ = reserve(pairs_of(positions_), columns, train);
    queries_at_ = reserve(queries, size_ / 2, true);
    diff_at_ = reserve(queries, size_ / 2, train);
    query_panels_at_ = reserve(pairs_of(queries), columns, train);
    diff_panels_at_ = reserve(pairs_of(queries), columns, train);
    factors_at_ = reserve(pairs_of(queries), ScoreBlock::row_width(keys), train);
  }
  std::string name() const override { return "tiles:avx512_bf16"; }
  std::size_t scratch_bytes() const override { return bytes_; }

  void begin_keys(const void* keys, const void* values, void* scratch) override {
    scratch_ = static_cast<std::byte*>(scratch);
    keys_source_ = static_cast<const bf16*>(keys);
    values_source_ = static_cast<const bf16*>(values);
    backward_ = false;
    turn(keys_turned_at_, keys_source_);
    pair_rows_of(values_at_, values_source_, stride_, positions_);
  }
  void begin_queries(std::int64_t count, const void* queries, const void* diff) override {
    copy(queries_at_, queries, stride_, count);
    if (!diff) return;
    copy(diff_at_, diff, out_, count);
    pair_rows_of(query_panels_at_, part(queries_at_), size_, count);
    pair_rows_of(diff_panels_at_, part(diff_at_), size_, count);
    if (std::exchange(backward_, true)) return;
    turn(values_turned_at_, values_source_);
    pair_rows_of(keys_at_, keys_source_, stride_, positions_);
  }

  void scores(const ScoreBlock& b, float* to) override { against_keys(b, queries_at_, keys_turned_at_, to); }
  void weighted(const ScoreBlock& b, const void* p, float* sums) override { over_keys(b, p, values_at_, sums); }
  void diff_probabilities(const ScoreBlock& b, float* diff) override {
    against_keys(b, diff_at_, values_turned_at_, diff);
  }
  void diff_value(const ScoreBlock& b, const void* p, float* diff) override {
    over_queries(b, p, diff_panels_at_, diff);
  }
  void diff_query(const ScoreBlock& b, const void* ds, float* diff) override { over_keys(b, ds, keys_at_, diff); }
  void diff_key(const ScoreBlock& b, const void* ds, float* diff) override {
    over_queries(b, ds, query_panels_at_, diff);
  }

 private:
  static std::int64_t whole_panels(std::int64_t columns) {
    return (columns + pair_columns - 1) / pair_columns * pair_columns;
  }
  bf16* part(std::size_t at) const { return reinterpret_cast<bf16*>(scratch_ + at); }

  // Panels of keys, with the pairs of features as the depth: pairs are moved like float32.
  void turn(std::size_t to, const bf16* from) const {
    const std::int64_t depth = size_ / 2, stride = stride_ / 2;
    for (std::int64_t c = 0; c < positions_; c += pair_columns)
      matmul::wide_tiles.pack(reinterpret_cast<float*>(part(to)) + c * depth,
                              reinterpret_cast<const float*>(from) + c * stride, {1, stride}, depth,
                              std::min(pair_columns, positions_ - c));
  }
  // Panels of features, with the pairs of rows as the depth.
  void pair_rows_of(std::size_t at, const bf16* from, std::int64_t stride, std::int64_t rows) const {
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
  // Rows side by side: at a distance that is a multiple of 4 KiB they would evict each other.
  void copy(std::size_t to, const void* from, std::int64_t stride, std::int64_t count) const {
    for (std::int64_t q = 0; q < count; ++q)
      std::memcpy(part(to) + q * size_, static_cast<const bf16*>(from) + q * stride, std::size_t(size_) * sizeof(bf16));
  }
  // Calls f(first, count) for the tiles of rows.
  template <class F>
  static void each_tile(std::int64_t rows, const F& f) {
    for (std::int64_t r = 0; r < rows; r += pair_rows) f(r, std::min(pair_rows, rows - r));
  }

  // to(query, key) = the sum over the head of rows(query, i) * turned(i, key)
  void against_keys(const ScoreBlock& b, std::size_t rows, std::size_t turned, float* to) const {
    for (std::int64_t c = 0; c < b.keys; c += pair_columns)
      each_tile(b.queries, [&](std::int64_t q, std::int64_t count) {
        if (b.visible(q + count - 1) > c)
          multiply_pairs({part(rows) + q * size_, size_, 2, count, size_ / 2}, part(turned) + (b.first_key + c) * size_,
                         Start::zero, to + q * b.row_width() + c, b.row_width(), std::min(pair_columns, b.keys - c));
      });
  }
  // to(query, i) += the sum over the keys of factors(query, key) * values(key, i)
  void over_keys(const ScoreBlock& b, const void* factors, std::size_t values, float* to) const {
    for (std::int64_t c = 0; c < size_; c += pair_columns)
      each_tile(b.queries, [&](std::int64_t q, std::int64_t count) {
        const std::int64_t pairs = pairs_of(b.visible(q + count - 1));
        if (pairs > 0)
          multiply_pairs({static_cast<const bf16*>(factors) + q * b.row_width(), b.row_width(), 2, count, pairs},
                         part(values) + 2 * c * pairs_of(positions_) + b.first_key * pair_columns, Start::dst,
                         to + q * size_ + c, size_, std::min(pair_columns, size_ - c));
      });
  }
  // to(key, i) += the sum over the queries of factors(query, key) * values(query, i)
  void over_queries(const ScoreBlock& b, const void* factors, std::size_t values, float* to) const {
    const std::int64_t width = b.row_width(), pairs = pairs_of(b.queries);
    bf16* const paired = part(factors_at_);
    for (std::int64_t q = 0; q < b.queries; q += 2) {
      const bf16* const first = static_cast<const bf16*>(factors) + q * width;
      interleave(paired + q * width, first, q + 1 < b.queries ? first + width : nullptr, width);
    }
    for (std::int64_t c = 0; c < size_; c += pair_columns)
      each_tile(b.keys, [&](std::int64_t k, std::int64_t count) {
        const std::int64_t first = b.causal ? std::max<std::int64_t>(0, b.first_key + k - b.first_query) / 2 : 0;
        if (first < pairs)
          multiply_pairs({paired + 2 * (first * width + k), 2, 2 * width, count, pairs - first},
                         part(values) + 2 * (c * pairs + first * pair_columns), Start::dst, to + k * size_ + c, size_,
                         std::min(pair_columns, size_ - c));
      });
  }

  std::int64_t positions_, size_, stride_, out_;  // stride_, out_: from one position to the next in src and dst
  std::size_t bytes_ = 0, keys_turned_at_, values_at_, values_turned_at_, keys_at_, queries_at_, diff_at_,
              query_panels_at_, diff_panels_at_, factors_at_;
  std::byte* scratch_ = nullptr;
  const bf16 *keys_source_ = nullptr, *values_source_ = nullptr;
  bool backward_ = false;  // the panels for it hold this head
};

}  // namespace

std::unique_ptr<HeadProducts> make_pair_products(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) {
  if (s.dtype != DType::bf16 || s.head_size() % 2 != 0 || !onednn::has_pairs()) return nullptr;
  return std::make_unique<PairProducts>(s, queries, keys);
}

}  // namespace millrace::cpu::attention
