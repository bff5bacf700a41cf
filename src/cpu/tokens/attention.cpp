// Attention in blocks. A thread computes all blocks of a row and head, one after the other, with products
// that run on this thread alone. A block of scores, its probabilities and their gradients stay in the cache.
//
// Backward computes the blocks in the order of the queries. The gradients of a key head are added up in float32 over
// all queries, and over the query heads that share it. Blocks in which all keys are of earlier documents are skipped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/tokens/attention_blocks.hpp"
#include "cpu/tokens/attention_products.hpp"

namespace millrace::cpu {
namespace {

using attention::BlockProducts, attention::ScoreBlock, attention::ThreadProducts;
using onednn::Call;

constexpr std::int64_t block_queries = 64, block_keys = attention::drawn_keys;

class Attention : public Op {
 public:
  explicit Attention(const AttentionSpec& spec) : spec_(spec), threads_(thread_count()) {
    queries_ = std::min(block_queries, spec_.positions());
    keys_ = std::min(block_keys, spec_.positions());
    const std::int64_t last_queries = spec_.positions() % queries_, last_keys = spec_.positions() % keys_;
    products_.resize(std::size_t(threads_));
    set_thread_count(1);  // oneDNN makes primitives for this number of threads
    for (ThreadProducts& p : products_)
      for (const bool few_queries : {false, true})
        for (const bool few_keys : {false, true})
          if ((!few_queries || last_queries > 0) && (!few_keys || last_keys > 0))
            p.of[few_queries][few_keys] =
                BlockProducts(spec_, few_queries ? last_queries : queries_, few_keys ? last_keys : keys_);
    set_thread_count(threads_);
    plan();
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    needs.workspace = thread_bytes_ * std::size_t(threads_);
    if (spec_.mode == Mode::train)
      needs.saved = std::size_t(spec_.src[0] * spec_.heads * spec_.positions()) * sizeof(float);
    return needs;
  }
  std::string implementation() const override { return "blocks of " + products_[0].of[0][0].scores.full_name(); }

  void forward(const OpArgs& args) override {
    parallel_ranges(spec_.src[0] * spec_.heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const Memory m = memory_of_thread(args);
      for (std::int64_t task = begin; task < end; ++task)
        for (std::int64_t q = 0; q < spec_.positions(); q += queries_)
          forward_queries(args, m, task / spec_.heads, task % spec_.heads, q);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    parallel_ranges(spec_.src[0] * spec_.key_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const Memory m = memory_of_thread(args);
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t row = task / spec_.key_heads, key_head = task % spec_.key_heads;
        std::fill_n(m.diff_key, spec_.positions() * size_, 0.0f);
        std::fill_n(m.diff_value, spec_.positions() * size_, 0.0f);
        for (std::int64_t head = key_head * group_; head < (key_head + 1) * group_; ++head)
          for (std::int64_t q = 0; q < spec_.positions(); q += queries_) backward_queries(args, m, row, head, q);
        write_rows(args.diff_src[0], row, 0, spec_.positions(), spec_.heads + key_head, m.diff_key);
        write_rows(args.diff_src[0], row, 0, spec_.positions(), spec_.heads + spec_.key_heads + key_head, m.diff_value);
      }
    });
  }

 private:
  // Of one thread, in the workspace.
  struct Memory {
    ThreadProducts* products;
    void* scratch;
    float *scores, *diff, *sums;          // (queries, keys) twice; (queries, head_size)
    void* narrow;                         // (queries, keys) in a 16-bit type
    float *maximum, *sum, *delta, *tile;  // (queries) three times; (2 * head_size)
    float *diff_key, *diff_value;         // (positions, head_size) each
    float* factors;                       // (queries, keys), of the dropout
  };

  void plan() {
    std::size_t scratch = 0;
    for (const auto& of_queries : products_[0].of)
      for (const BlockProducts& p : of_queries) scratch = std::max(scratch, p.scratch_bytes());
    const auto floats = [](std::int64_t count) { return align64(std::size_t(count) * sizeof(float)); };
    const bool train = spec_.mode == Mode::train;
    const std::size_t sizes[] = {align64(scratch),
                                 floats(queries_ * keys_),
                                 train ? floats(queries_ * keys_) : 0,
                                 spec_.dtype == DType::f32 ? 0 : floats((queries_ * keys_ + 1) / 2),
                                 floats(queries_ * size_),
                                 floats(queries_),
                                 floats(queries_),
                                 floats(queries_),
                                 floats(2 * size_),
                                 train ? floats(spec_.positions() * size_) : 0,
                                 train ? floats(spec_.positions() * size_) : 0,
                                 spec_.drops() ? floats(queries_ * keys_) : 0};
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
    return {&products_[std::size_t(thread)],
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
    return element(t, ((row * spec_.positions() + position) * t.shape[-1]) + head * size_);
  }
  float* log_sums(const OpArgs& args, std::int64_t row, std::int64_t head) const {
    return static_cast<float*>(args.saved) + (row * spec_.heads + head) * spec_.positions();
  }
  void run(Call& call, const Memory& m, const void* a, const void* b, void* result) const {
    call.bind(DNNL_ARG_SRC, const_cast<void*>(a));
    call.bind(DNNL_ARG_WEIGHTS, const_cast<void*>(b));
    call.bind(DNNL_ARG_DST, result);
    call.bind_scratch(m.scratch);
    call.run();
  }
  // The block in the type of the products.
  const void* narrowed(const Memory& m, const ScoreBlock& b, const float* values) const {
    if (spec_.dtype == DType::f32) return values;
    from_float(m.narrow, spec_.dtype, values, b.queries * b.keys);
    return m.narrow;
  }

  // Calls body(block, products) for the blocks that queries [first, first + count) attend to.
  template <class Body>
  void each_block(const OpArgs& args, const Memory& m, std::int64_t row, std::int64_t first, std::int64_t count,
                  const Body& body) const {
    const std::int32_t* const starts =
        spec_.documents ? args.src[2].as<std::int32_t>() + row * spec_.positions() : nullptr;
    const std::int64_t end = spec_.causal ? first + count : spec_.positions();
    for (std::int64_t k = starts ? starts[first] / keys_ * keys_ : 0; k < end; k += keys_) {
      const ScoreBlock b{first, count, k, std::min(keys_, spec_.positions() - k), spec_.causal, starts};
      body(b, m.products->of[count < queries_][b.keys < keys_]);
    }
  }

  // The factors of the dropout for a block; null: there is none.
  const float* factors(const OpArgs& args, const Memory& m, const ScoreBlock& b, std::int64_t row,
                       std::int64_t head) const {
    if (!spec_.drops()) return nullptr;
    const auto id = std::uint64_t(args.src[1].as<std::int64_t>()[row]);
    attention::dropout_factors(b, {dropout_, int(head), id, args.state->rng_step}, m.factors);
    return m.factors;
  }

  void forward_queries(const OpArgs& args, const Memory& m, std::int64_t row, std::int64_t head, std::int64_t first) {
    const std::int64_t count = std::min(queries_, spec_.positions() - first), key = spec_.heads + head / group_;
    std::fill_n(m.maximum, count, -std::numeric_limits<float>::infinity());
    std::fill_n(m.sum, count, 0.0f);
    std::fill_n(m.sums, count * size_, 0.0f);
    each_block(args, m, row, first, count, [&](const ScoreBlock& b, BlockProducts& p) {
      run(p.scores, m, in_src(args.src[0], row, first, head), in_src(args.src[0], row, b.first_key, key), m.scores);
      attention::softmax_block(b, scale_, m.scores, m.maximum, m.sum, m.sums, size_);
      if (const float* kept = factors(args, m, b, row, head)) multiply(m.scores, m.scores, kept, b.queries * b.keys);
      run(p.weighted, m, narrowed(m, b, m.scores), in_src(args.src[0], row, b.first_key, key + spec_.key_heads),
          m.sums);
    });
    for (std::int64_t q = 0; q < count; ++q) attention::divide(m.sums + q * size_, m.sums + q * size_, m.sum[q], size_);
    write_rows(args.dst, row, first, count, head, m.sums);
    if (spec_.mode == Mode::infer) return;
    for (std::int64_t q = 0; q < count; ++q) log_sums(args, row, head)[first + q] = m.maximum[q] + std::log(m.sum[q]);
  }

  void backward_queries(const OpArgs& args, const Memory& m, std::int64_t row, std::int64_t head, std::int64_t first) {
    const std::int64_t count = std::min(queries_, spec_.positions() - first), key = spec_.heads + head / group_;
    for (std::int64_t q = 0; q < count; ++q) {  // the sum of probability * its gradient equals dst * diff_dst
      const std::int64_t from = (row * spec_.positions() + first + q) * args.dst.shape[-1] + head * size_;
      m.delta[q] = attention::dot(read_floats(args.dst, from, size_, m.tile),
                                  read_floats(args.diff_dst, from, size_, m.tile + size_), size_);
    }
    std::fill_n(m.sums, count * size_, 0.0f);
    const void *queries = in_src(args.src[0], row, first, head), *diff = in_src(args.diff_dst, row, first, head);
    each_block(args, m, row, first, count, [&](const ScoreBlock& b, BlockProducts& p) {
      const void *keys = in_src(args.src[0], row, b.first_key, key),
                 *values = in_src(args.src[0], row, b.first_key, key + spec_.key_heads);
      run(p.scores, m, queries, keys, m.scores);
      attention::probabilities_block(b, scale_, m.scores, log_sums(args, row, head) + first);
      const float* const kept = factors(args, m, b, row, head);
      if (kept) multiply(m.diff, m.scores, kept, b.queries * b.keys);
      run(p.diff_value, m, narrowed(m, b, kept ? m.diff : m.scores), diff, m.diff_value + b.first_key * size_);
      run(p.diff_probabilities, m, diff, values, m.diff);
      if (kept) multiply(m.diff, m.diff, kept, b.queries * b.keys);
      attention::score_gradients(b, scale_, m.diff, m.scores, m.delta);
      const void* diff_scores = narrowed(m, b, m.diff);
      run(p.diff_query, m, diff_scores, keys, m.sums);
      run(p.diff_key, m, diff_scores, queries, m.diff_key + b.first_key * size_);
    });
    write_rows(args.diff_src[0], row, first, count, head, m.sums);
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
  std::int64_t queries_ = 1, keys_ = 1;  // of a whole block
  std::vector<ThreadProducts> products_;
  std::vector<std::size_t> offsets_;  // of the parts of a thread's memory
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
