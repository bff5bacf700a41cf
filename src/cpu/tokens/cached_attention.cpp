// Attention with a cache, for generating text: a few queries over all keys so far. So it is bound by the memory
// bandwidth of the cache, and needs no blocks.
//
// The cache holds float32: for each row and key head the keys, (head_size, window), and the values, (window,
// head_size). Thus scores and results are both the product of a vector and a matrix whose rows are contiguous.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/tokens/attention_blocks.hpp"

namespace millrace::cpu {
namespace {

// to[j] = the sum over i of x[i] * matrix[i, j], for the first `columns` columns of its rows.
MR_TARGET_CLONES void multiply_rows(float* __restrict to, const float* __restrict x, std::int64_t rows,
                                    const float* __restrict matrix, std::int64_t stride, std::int64_t columns) {
  std::fill_n(to, columns, 0.0f);
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const float *a = matrix + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
    for (std::int64_t j = 0; j < columns; ++j)
      to[j] += (x[i] * a[j] + x[i + 1] * b[j]) + (x[i + 2] * c[j] + x[i + 3] * d[j]);
  }
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j] += x[i] * matrix[i * stride + j];
}

class CachedAttention : public Op {
 public:
  explicit CachedAttention(const AttentionSpec& spec) : spec_(spec), threads_(thread_count()) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    needs.workspace = std::size_t(thread_floats_ * threads_) * sizeof(float);
    needs.cache = std::size_t(spec_.src[0] * spec_.key_heads * 2 * of_head_) * sizeof(float);
    return needs;
  }
  std::string implementation() const override { return "cache"; }

  void forward(const OpArgs& args) override {
    const std::int64_t first = std::int64_t(args.state->position), positions = spec_.positions();
    MR_CHECK(first + positions <= spec_.window, "attention: position {} exceeds the cache", first + positions - 1);
    parallel_ranges(spec_.src[0] * spec_.key_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task)
        for (std::int64_t p = 0; p < positions; ++p) store(args, task / spec_.key_heads, task % spec_.key_heads, p);
    });
    parallel_ranges(spec_.src[0] * spec_.heads * positions, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t head = task / positions;
        attend(args, head / spec_.heads, head % spec_.heads, task % positions);
      }
    });
  }
  void backward(const OpArgs&) override {}

 private:
  float* keys(const OpArgs& args, std::int64_t row, std::int64_t key_head) const {
    return static_cast<float*>(args.cache) + (row * spec_.key_heads + key_head) * 2 * of_head_;
  }
  float* values(const OpArgs& args, std::int64_t row, std::int64_t key_head) const {
    return keys(args, row, key_head) + of_head_;
  }
  // Of src. head: of the queries, then the keys, then the values.
  std::int64_t in_src(std::int64_t row, std::int64_t p, std::int64_t head) const {
    return (row * spec_.positions() + p) * spec_.src[-1] + head * size_;
  }
  // The workspace of this thread: scores (window), then two vectors of a head.
  float* memory_of_thread(const OpArgs& args) const {
    return static_cast<float*>(args.workspace) + thread_floats_ * thread_number();
  }

  void store(const OpArgs& args, std::int64_t row, std::int64_t key_head, std::int64_t p) const {
    const std::int64_t to = std::int64_t(args.state->position) + p, head = spec_.heads + key_head;
    float* const values_at = values(args, row, key_head) + to * size_;
    to_float(values_at, element(args.src[0], in_src(row, p, head)), spec_.dtype, size_);
    for (std::int64_t i = 0; i < size_; ++i) keys(args, row, key_head)[i * spec_.window + to] = values_at[i];
    to_float(values_at, element(args.src[0], in_src(row, p, head + spec_.key_heads)), spec_.dtype, size_);
  }

  void attend(const OpArgs& args, std::int64_t row, std::int64_t head, std::int64_t p) const {
    const std::int64_t count = std::int64_t(args.state->position) + p + 1, key_head = head / group_;
    float *const scores = memory_of_thread(args), *const sums = scores + spec_.window, *const query = sums + size_;
    multiply_rows(scores, read_floats(args.src[0], in_src(row, p, head), size_, query), size_,
                  keys(args, row, key_head), spec_.window, count);
    float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
    attention::softmax_block({count - 1, 1, 0, count, true}, scale_, scores, &maximum, &sum, sums, 0);
    multiply_rows(sums, scores, count, values(args, row, key_head), size_, size_);
    attention::divide(sums, sums, sum, size_);
    from_float(element(args.dst, (row * spec_.positions() + p) * args.dst.shape[-1] + head * size_), spec_.dtype, sums,
               size_);
  }

  AttentionSpec spec_;
  int threads_;
  std::int64_t size_ = spec_.head_size(), group_ = spec_.heads / spec_.key_heads, of_head_ = spec_.window * size_;
  float scale_ = float(1 / std::sqrt(double(size_)));
  std::int64_t thread_floats_ = (spec_.window + 2 * size_ + 15) / 16 * 16;  // a multiple of a cache line
};

}  // namespace

std::unique_ptr<Op> make_cached_attention(const AttentionSpec& spec) { return std::make_unique<CachedAttention>(spec); }

}  // namespace millrace::cpu
