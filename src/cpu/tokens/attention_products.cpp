#include "cpu/tokens/attention_products.hpp"

#include <algorithm>

#include "cpu/common/ops.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/tokens/panel_products.hpp"

namespace millrace::cpu::attention {
namespace {

using matmul::Start, matmul::TileKernels;
using onednn::Call, onednn::desc;

// For float32. What causal attention excludes is left out, tile by tile.
class TileProducts : public PanelProducts<float> {
 public:
  TileProducts(const AttentionSpec& s, const TileKernels& tiles, std::int64_t queries)
      : PanelProducts(s), tiles_(tiles) {
    const std::int64_t columns = whole_panels(size_);
    reserve_panels(size_ * whole_panels(positions_), positions_ * columns, queries, queries * columns);
  }
  std::string name() const override { return std::string("tiles:") + tiles_.name; }

 private:
  std::int64_t whole_panels(std::int64_t columns) const {
    return (columns + tiles_.columns - 1) / tiles_.columns * tiles_.columns;
  }
  void pack_turned(std::size_t to, const float* from) const override {
    pack(to, from, {1, stride_}, size_, positions_);
  }
  void pack_rows(std::size_t to, const float* from, std::int64_t stride, std::int64_t rows) const override {
    pack(to, from, {stride, 1}, rows, size_);
  }
  void pack(std::size_t to, const float* from, MatrixStrides strides, std::int64_t depth, std::int64_t columns) const {
    for (std::int64_t c = 0; c < columns; c += tiles_.columns)
      tiles_.pack(part(to) + c * depth, from + c * strides.column, strides, depth,
                  std::min(tiles_.columns, columns - c));
  }

  void against_keys(const ScoreBlock& b, std::size_t rows, std::size_t turned, float* to) const override {
    for (std::int64_t c = 0; c < b.keys; c += tiles_.columns)
      each_tile(b.queries, tiles_.rows, [&](std::int64_t q, std::int64_t count) {
        if (b.visible(q + count - 1) > c)
          tiles_.multiply({part(rows) + q * size_, {size_, 1}, count, size_}, part(turned) + (b.first_key + c) * size_,
                          Start::zero, to + q * b.row_width() + c, b.row_width(), std::min(tiles_.columns, b.keys - c));
      });
  }
  void over_keys(const ScoreBlock& b, const void* factors, std::size_t values, float* to) const override {
    for (std::int64_t c = 0; c < size_; c += tiles_.columns)
      each_tile(b.queries, tiles_.rows, [&](std::int64_t q, std::int64_t count) {
        const std::int64_t keys = b.visible(q + count - 1);
        if (keys > 0)
          tiles_.multiply({static_cast<const float*>(factors) + q * b.row_width(), {b.row_width(), 1}, count, keys},
                          part(values) + c * positions_ + b.first_key * tiles_.columns, Start::dst, to + q * size_ + c,
                          size_, std::min(tiles_.columns, size_ - c));
      });
  }
  void over_queries(const ScoreBlock& b, const void* factors, std::size_t values, float* to) const override {
    for (std::int64_t c = 0; c < size_; c += tiles_.columns)
      each_tile(b.keys, tiles_.rows, [&](std::int64_t k, std::int64_t count) {
        const std::int64_t first = b.causal ? std::max<std::int64_t>(0, b.first_key + k - b.first_query) : 0;
        if (first < b.queries)
          tiles_.multiply({static_cast<const float*>(factors) + first * b.row_width() + k,
                           {1, b.row_width()},
                           count,
                           b.queries - first},
                          part(values) + c * b.queries + first * tiles_.columns, Start::dst, to + k * size_ + c, size_,
                          std::min(tiles_.columns, size_ - c));
      });
  }

  const TileKernels& tiles_;
};

// The products of one block, for its numbers of queries and keys.
struct BlockCalls {
  Call scores, weighted, diff_probabilities, diff_value, diff_query, diff_key;

  BlockCalls() = default;
  BlockCalls(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) {
    const std::int64_t size = s.head_size(), stride = s.src[-1], out = s.heads * size,
                       width = ScoreBlock::row_width(keys);
    const DType t = s.dtype;
    const desc q = onednn::strided({queries, size}, t, {stride, 1}), k = onednn::strided({keys, size}, t, {stride, 1}),
               k_turned = onednn::strided({size, keys}, t, {1, stride}),
               d_out = onednn::strided({queries, size}, t, {out, 1}),
               block = onednn::strided({queries, keys}, t, {width, 1}),
               block_turned = onednn::strided({keys, queries}, t, {1, width}),
               block_f32 = onednn::strided({queries, keys}, DType::f32, {width, 1}),
               of_queries = onednn::plain({queries, size}, DType::f32),
               of_keys = onednn::plain({keys, size}, DType::f32);
    scores = product(q, k_turned, block_f32, false);
    weighted = product(block, k, of_queries, true);
    if (s.mode == Mode::infer) return;
    diff_probabilities = product(d_out, k_turned, block_f32, false);
    diff_value = product(block_turned, d_out, of_keys, true);
    diff_query = product(block, k, of_queries, true);
    diff_key = product(block_turned, q, of_keys, true);
  }
  std::size_t scratch_bytes() const {
    std::size_t most = 0;
    for (const Call* call : {&scores, &weighted, &diff_probabilities, &diff_value, &diff_query, &diff_key})
      most = std::max(most, call->scratch_bytes());
    return most;
  }

 private:
  static Call product(const desc& a, const desc& b, const desc& result, bool add) {
    return onednn::matmul_call(a, b, desc(), result, Activation::none, add);
  }
};

class OnednnProducts : public HeadProducts {
 public:
  OnednnProducts(const AttentionSpec& s, std::int64_t queries, std::int64_t keys)
      : queries_(queries), keys_(keys), position_bytes_(std::size_t(s.src[-1]) * size_of(s.dtype)) {
    const std::int64_t last_queries = s.asking() % queries, last_keys = s.positions() % keys;
    for (const bool few_queries : {false, true})
      for (const bool few_keys : {false, true}) {
        if ((few_queries && last_queries == 0) || (few_keys && last_keys == 0)) continue;
        BlockCalls& calls = calls_[few_queries][few_keys];
        calls = BlockCalls(s, few_queries ? last_queries : queries, few_keys ? last_keys : keys);
        bytes_ = std::max(bytes_, calls.scratch_bytes());
      }
  }
  std::string name() const override { return "onednn " + calls_[0][0].scores.name(); }
  std::size_t scratch_bytes() const override { return bytes_; }
  void begin_keys(const void* keys, const void* values, void* scratch) override {
    key_rows_ = static_cast<const std::byte*>(keys);
    value_rows_ = static_cast<const std::byte*>(values);
    scratch_ = scratch;
  }
  void begin_queries(std::int64_t, const void* queries, const void* diff) override {
    query_rows_ = queries;
    diff_rows_ = diff;
  }

  void scores(const ScoreBlock& b, float* to) override { run(of(b).scores, query_rows_, keys(b), to); }
  void weighted(const ScoreBlock& b, const void* p, float* sums) override { run(of(b).weighted, p, values(b), sums); }
  void diff_probabilities(const ScoreBlock& b, float* diff) override {
    run(of(b).diff_probabilities, diff_rows_, values(b), diff);
  }
  void diff_value(const ScoreBlock& b, const void* p, float* diff) override {
    run(of(b).diff_value, p, diff_rows_, diff);
  }
  void diff_query(const ScoreBlock& b, const void* ds, float* diff) override {
    run(of(b).diff_query, ds, keys(b), diff);
  }
  void diff_key(const ScoreBlock& b, const void* ds, float* diff) override {
    run(of(b).diff_key, ds, query_rows_, diff);
  }

 private:
  BlockCalls& of(const ScoreBlock& b) { return calls_[b.queries < queries_][b.keys < keys_]; }
  const void* keys(const ScoreBlock& b) const { return key_rows_ + position_bytes_ * std::size_t(b.first_key); }
  const void* values(const ScoreBlock& b) const { return value_rows_ + position_bytes_ * std::size_t(b.first_key); }
  void run(Call& call, const void* a, const void* b, void* result) const {
    call.bind(DNNL_ARG_SRC, const_cast<void*>(a));
    call.bind(DNNL_ARG_WEIGHTS, const_cast<void*>(b));
    call.bind(DNNL_ARG_DST, result);
    call.bind_scratch(scratch_);
    call.run();
  }

  std::int64_t queries_, keys_;  // of a whole block
  std::size_t position_bytes_, bytes_ = 0;
  BlockCalls calls_[2][2];  // [queries are fewer][keys are fewer]
  const std::byte *key_rows_ = nullptr, *value_rows_ = nullptr;
  const void *query_rows_ = nullptr, *diff_rows_ = nullptr;
  void* scratch_ = nullptr;
};

}  // namespace

std::unique_ptr<HeadProducts> make_onednn_products(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) {
  return std::make_unique<OnednnProducts>(s, queries, keys);
}

std::unique_ptr<HeadProducts> make_head_products(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) {
  if (const TileKernels* tiles = s.dtype == DType::f32 ? onednn::tile_kernels() : nullptr)
    return std::make_unique<TileProducts>(s, *tiles, queries);
  if (auto pairs = make_pair_products(s, queries, keys)) return pairs;
  return make_onednn_products(s, queries, keys);
}

}  // namespace millrace::cpu::attention
