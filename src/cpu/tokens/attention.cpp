// Attention in blocks. A thread computes all blocks of a row and head, one after the other, with products
// that run on this thread alone. A block of scores, its probabilities and their gradients stay in the cache.
//
// Backward computes the blocks in the order of the queries. The gradients of a key head are added up in float32 over
// all queries, and over the query heads that share it. Blocks in which all keys are of earlier documents are skipped.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/tokens/attention_blocks.hpp"
#include "cpu/tokens/attention_products.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cpu {
namespace {

using attention::HeadProducts, attention::ScoreBlock;

// Queries are multiples of the rows of a tile of the products, 6 or 12.
constexpr std::int64_t most_queries = 72, tile_queries = 12, block_keys = attention::drawn_keys;

// A multiple of tile_queries. The last block of a row may have fewer.
std::int64_t queries_of_block(std::int64_t count) {
  return std::min(count, ceil_div(ceil_div(count, ceil_div(count, most_queries)), tile_queries) * tile_queries);
}

class Attention : public Op {
 public:
  explicit Attention(const AttentionSpec& spec) : spec_(spec), threads_(thread_count()) {
    queries_ = queries_of_block(spec_.asking());
    keys_ = std::min(block_keys, spec_.positions());
    for (int t = 0; t < threads_; ++t) {
      const Alone alone;  // oneDNN makes primitives for this number of threads
      products_.push_back(attention::make_head_products(spec_, queries_, keys_));
    }
    plan();
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    needs.workspace = thread_bytes_ * std::size_t(threads_);
    if (spec_.mode == Mode::train)
      needs.saved = std::size_t(spec_.src[0] * spec_.heads * spec_.asking()) * sizeof(float);
    return needs;
  }
  std::string implementation() const override { return "blocks of " + products_[0]->name(); }

  void forward(const OpArgs& args) override {
    parallel_ranges(spec_.src[0] * spec_.heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const Memory m = memory_of_thread(args);
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t row = task / spec_.heads, head = task % spec_.heads;
        begin_keys(args, m, row, head / group_);
        for (std::int64_t q = 0; q < spec_.asking(); q += queries_) forward_queries(args, m, row, head, q);
      }
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    parallel_ranges(spec_.src[0] * spec_.key_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const Memory m = memory_of_thread(args);
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t row = task / spec_.key_heads, key_head = task % spec_.key_heads;
        begin_keys(args, m, row, key_head);
        std::fill_n(m.diff_key, spec_.positions() * size_, 0.0f);
        std::fill_n(m.diff_value, spec_.positions() * size_, 0.0f);
        for (std::int64_t head = key_head * group_; head < (key_head + 1) * group_; ++head) {
          clear_others(args.diff_src[0], row, head);
          for (std::int64_t q = 0; q < spec_.asking(); q += queries_) backward_queries(args, m, row, head, q);
        }
        write_rows(args.diff_src[0], row, 0, spec_.positions(), spec_.heads + key_head, m.diff_key);
        write_rows(args.diff_src[0], row, 0, spec_.positions(), spec_.heads + spec_.key_heads + key_head, m.diff_value);
      }
    });
  }

 private:
  // Of one thread, in the workspace.
  struct Memory {
    HeadProducts* products;
    void* scratch;
    float *scores, *diff, *sums;          // (queries, keys) twice; (queries, head_size)
    void* narrow;                         // (queries, keys) in a 16-bit type
    float *maximum, *sum, *delta, *tile;  // (queries) three times; (2 * head_size)
    float *diff_key, *diff_value;         // (positions, head_size) each
    float* factors;                       // (queries, keys), of the dropout
  };

  void plan() {
    const auto floats = [](std::int64_t count) { return align64(std::size_t(count) * sizeof(float)); };
    const bool train = spec_.mode == Mode::train;
    const std::int64_t block = queries_ * ScoreBlock::row_width(keys_);
    const std::size_t sizes[] = {align64(products_[0]->scratch_bytes()),
                                 floats(block),
                                 train ? floats(block) : 0,
                                 spec_.dtype == DType::f32 ? 0 : floats((block + 1) / 2),
                                 floats(queries_ * size_),
                                 floats(queries_),
                                 floats(queries_),
                                 floats(queries_),
                                 floats(2 * size_),
                                 train ? floats(spec_.positions() * size_) : 0,
                                 train ? floats(spec_.positions() * size_) : 0,
                                 spec_.drops() ? floats(block) : 0};
    for (const std::size_t size : sizes) {
      offsets_.push_back(thread_bytes_);
      thread_bytes_ += size;
    }
  }
  Memory memory_of_thread(const OpArgs& args) {
    const int thread = thread_number();
    const auto part = [&](std::size_t i) {
      return at(args.workspace, thread_bytes_ * std::size_t(thread) + offsets_[i]);
    };
    const auto floats = [&](std::size_t i) { return static_cast<float*>(part(i)); };
    return {products_[std::size_t(thread)].get(),
            part(0),
            floats(1),
            floats(2),
            floats(4),
            part(3),
            floats(5),
            floats(6),
            floats(7),
            floats(8),
            floats(9),
            floats(10),
            floats(11)};
  }

  // head: of the queries, then the keys, then the values
  void* in_src(const Tensor& t, std::int64_t row, std::int64_t position, std::int64_t head) const {
    return element(t, row * t.shape.row_count() + position * t.shape[-1] + head * size_);
  }
  float* log_sums(const OpArgs& args, std::int64_t row, std::int64_t head) const {
    return static_cast<float*>(args.saved) + (row * spec_.heads + head) * spec_.asking();
  }
  void begin_keys(const OpArgs& args, const Memory& m, std::int64_t row, std::int64_t key_head) const {
    m.products->begin_keys(in_src(args.src[0], row, 0, spec_.heads + key_head),
                           in_src(args.src[0], row, 0, spec_.heads + spec_.key_heads + key_head), m.scratch);
  }
  // The block in the type of the products.
  const void* narrowed(const Memory& m, const ScoreBlock& b, const float* values) const {
    if (spec_.dtype == DType::f32) return values;
    from_float(m.narrow, spec_.dtype, values, b.queries * b.row_width());
    return m.narrow;
  }

  // Calls body(block) for the blocks that the positions [first, first + count) attend to.
  template <class Body>
  void each_block(const OpArgs& args, std::int64_t row, std::int64_t first, std::int64_t count,
                  const Body& body) const {
    const std::int32_t* const starts =
        spec_.documents ? args.src[2].as<std::int32_t>() + row * spec_.positions() : nullptr;
    const std::int64_t end = spec_.causal ? first + count : spec_.positions();
    for (std::int64_t k = starts ? starts[first] / keys_ * keys_ : 0; k < end; k += keys_)
      body(ScoreBlock{first, count, k, std::min(keys_, spec_.positions() - k), spec_.causal, starts});
  }

  // The factors of the dropout for a block; null: there is none.
  const float* factors(const OpArgs& args, const Memory& m, const ScoreBlock& b, std::int64_t row,
                       std::int64_t head) const {
    if (!spec_.drops()) return nullptr;
    const auto id = std::uint64_t(args.src[1].as<std::int64_t>()[row]);
    attention::dropout_factors(b, {dropout_, int(head), id, args.state->rng_step}, m.factors);
    return m.factors;
  }

  // first: among those that ask.
  void forward_queries(const OpArgs& args, const Memory& m, std::int64_t row, std::int64_t head, std::int64_t first) {
    const std::int64_t count = std::min(queries_, spec_.asking() - first), position = spec_.first_query + first;
    std::fill_n(m.maximum, count, -std::numeric_limits<float>::infinity());
    std::fill_n(m.sum, count, 0.0f);
    std::fill_n(m.sums, count * size_, 0.0f);
    m.products->begin_queries(count, in_src(args.src[0], row, position, head), nullptr);
    each_block(args, row, position, count, [&](const ScoreBlock& b) {
      m.products->scores(b, m.scores);
      attention::softmax_block(b, scale_, m.scores, m.maximum, m.sum, m.sums, size_);
      if (const float* kept = factors(args, m, b, row, head))
        multiply(m.scores, m.scores, kept, b.queries * b.row_width());
      m.products->weighted(b, narrowed(m, b, m.scores), m.sums);
    });
    for (std::int64_t q = 0; q < count; ++q) attention::divide(m.sums + q * size_, m.sums + q * size_, m.sum[q], size_);
    write_rows(args.dst, row, first, count, head, m.sums);
    if (spec_.mode == Mode::infer) return;
    for (std::int64_t q = 0; q < count; ++q) log_sums(args, row, head)[first + q] = m.maximum[q] + std::log(m.sum[q]);
  }

  void backward_queries(const OpArgs& args, const Memory& m, std::int64_t row, std::int64_t head, std::int64_t first) {
    const std::int64_t count = std::min(queries_, spec_.asking() - first), position = spec_.first_query + first;
    const RowSums& rows = row_sums();
    for (std::int64_t q = 0; q < count; ++q) {  // the sum of probability * its gradient equals dst * diff_dst
      const std::int64_t from = (row * spec_.asking() + first + q) * args.dst.shape[-1] + head * size_;
      m.delta[q] = rows.dot(read_floats(args.dst, from, size_, m.tile),
                            read_floats(args.diff_dst, from, size_, m.tile + size_), size_);
    }
    std::fill_n(m.sums, count * size_, 0.0f);
    m.products->begin_queries(count, in_src(args.src[0], row, position, head), in_src(args.diff_dst, row, first, head));
    each_block(args, row, position, count, [&](const ScoreBlock& b) {
      m.products->scores(b, m.scores);
      attention::probabilities_block(b, scale_, m.scores, log_sums(args, row, head) + first);
      const float* const kept = factors(args, m, b, row, head);
      if (kept) multiply(m.diff, m.scores, kept, b.queries * b.row_width());
      m.products->diff_value(b, narrowed(m, b, kept ? m.diff : m.scores), m.diff_value + b.first_key * size_);
      m.products->diff_probabilities(b, m.diff);
      if (kept) multiply(m.diff, m.diff, kept, b.queries * b.row_width());
      attention::score_gradients(b, scale_, m.diff, m.scores, m.delta);
      const void* diff_scores = narrowed(m, b, m.diff);
      m.products->diff_query(b, diff_scores, m.sums);
      m.products->diff_key(b, diff_scores, m.diff_key + b.first_key * size_);
    });
    write_rows(args.diff_src[0], row, position, count, head, m.sums);
  }

  // The gradients of queries that do not ask.
  void clear_others(const Tensor& to, std::int64_t row, std::int64_t head) const {
    const std::int64_t first = spec_.first_query, end = first + spec_.asking();
    for (std::int64_t p = 0; p < spec_.positions(); ++p)
      if (p < first || p >= end) std::memset(in_src(to, row, p, head), 0, std::size_t(size_) * size_of(to.dtype));
  }

  void write_rows(const Tensor& to, std::int64_t row, std::int64_t first, std::int64_t count, std::int64_t head,
                  const float* values) const {
    for (std::int64_t p = 0; p < count; ++p)
      from_float(in_src(to, row, first + p, head), to.dtype, values + p * size_, size_);
  }

  AttentionSpec spec_;
  int threads_;
  std::int64_t size_ = spec_.head_size(), group_ = spec_.heads / spec_.key_heads;
  float scale_ = float(1 / std::sqrt(double(size_)));
  AttentionDropout dropout_{spec_.seed, spec_.layer, spec_.positions(), spec_.dropout};
  std::int64_t queries_ = 1, keys_ = 1;                  // of a whole block
  std::vector<std::unique_ptr<HeadProducts>> products_;  // by thread
  std::vector<std::size_t> offsets_;                     // of the parts of a thread's memory
  std::size_t thread_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_attention(const AttentionSpec& spec) {
  spec.check();
  if (spec.window > 0) return make_cached_attention(spec);
  const HalfTensors tensors{.src = {spec.src.count()},
                            .dst = spec.dst().count(),
                            .keeps_src = true,
                            .keeps_dst = true,
                            .infer = spec.mode == Mode::infer};
  return native_or_emulated<Attention>(spec, "attention " + spec.src.str(), tensors);
}

}  // namespace millrace::cpu
