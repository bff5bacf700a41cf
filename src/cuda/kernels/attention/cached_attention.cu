// Attention with a cache, for generating text. A block computes a query of a head over all keys so far.
//
// The cache holds for each row and key head the keys, (head_size, window), and the values, (window, head_size). Thus
// neighbouring threads read neighbouring elements: a thread computes the score of a key, and adds up a column of the
// values. Where heads are narrow, groups of threads share a column: each takes some of the keys.
#include <algorithm>
#include <cmath>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

constexpr int cache_threads = 512;

template <class T>
struct Cache {
  T* data;
  const StepState* state;
  int positions, window, size, heads, key_heads;  // positions: of src

  MR_DEVICE_INLINE T* keys(int row, int key_head) const {
    return data + (std::int64_t(row) * key_heads + key_head) * 2 * window * size;
  }
  MR_DEVICE_INLINE T* values(int row, int key_head) const { return keys(row, key_head) + std::int64_t(window) * size; }
};

// Index i is an element of the keys and values in src: (rows, positions, 2 * key_heads, size).
template <class T>
struct StoreInCache {
  Cache<T> cache;
  const T* src;
  Divider by_size, by_heads, by_positions;  // by_heads: of keys and values
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int column = int(i);
    int head = by_size.split(column);
    const int at = by_heads.split(head);
    int position = at;
    const int row = by_positions.split(position);
    position += int(cache.state->position);
    const std::int64_t heads = cache.heads + 2 * cache.key_heads;
    const T value = src[(at * heads + cache.heads + head) * cache.size + column];
    if (head < cache.key_heads)
      cache.keys(row, head)[std::int64_t(column) * cache.window + position] = value;
    else
      cache.values(row, head - cache.key_heads)[std::int64_t(position) * cache.size + column] = value;
  }
};

template <class T>
struct AttendToCache {
  Cache<T> cache;
  T* dst;
  const T* src;
  float scale;
  int groups;  // of threads that share the columns; 1 if there are more columns than threads

  // Shared memory: the query, the probabilities of some keys, and the sums of each group.
  static std::size_t shared_bytes(int size, int groups) {
    return std::size_t(size + cache_threads + groups * size) * sizeof(float);
  }

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int size = cache.size, thread = block.thread();
    const int head = int(block.index()) % cache.heads, key_head = head / (cache.heads / cache.key_heads);
    const int in_src = int(block.index()) / cache.heads, row = in_src / cache.positions;
    const int count = int(cache.state->position) + in_src % cache.positions + 1;
    const std::int64_t at = in_src;
    float *const query = block.template shared<float>(), *const probabilities = query + size,
                 *const sums = probabilities + cache_threads;
    const T* const from = src + (at * (cache.heads + 2 * cache.key_heads) + head) * size;
    for (int i = thread; i < size; i += cache_threads) query[i] = scale * widen(from[i]);
    for (int i = thread; i < groups * size; i += cache_threads) sums[i] = 0;
    block.sync();
    float maximum = -INFINITY, sum = 0;  // the sum is this thread's part
    MR_NO_UNROLL for (int first = 0; first < count; first += cache_threads) {
      const int key = first + thread, keys = count - first < cache_threads ? count - first : cache_threads;
      const float score = thread < keys ? dot(query, cache.keys(row, key_head) + key) : -INFINITY;
      const float largest = block.max(score), before = maximum;
      maximum = largest > maximum ? largest : maximum;
      const float factor = expf(before - maximum);  // 0 for the first keys
      probabilities[thread] = expf(score - maximum);
      sum = sum * factor + probabilities[thread];
      block.sync();
      add_values(block, sums, probabilities, cache.values(row, key_head) + std::int64_t(first) * size, keys, factor);
    }
    const float total = block.sum(sum);
    for (int i = thread; i < size; i += cache_threads) {
      float value = 0;
      for (int g = 0; g < groups; ++g) value += sums[g * size + i];
      dst[(at * cache.heads + head) * size + i] = narrow<T>(value / total);
    }
  }

 private:
  // key: its first element; the next ones follow at a distance of `window`.
  MR_DEVICE_INLINE float dot(const float* query, const T* key) const {
    float sum = 0;
    MR_UNROLL_8 for (int i = 0; i < cache.size; ++i) sum += query[i] * widen(key[std::int64_t(i) * cache.window]);
    return sum;
  }
  // sums = factor * sums + probabilities * values. Only the same thread reads its sums, until the end.
  template <class Block>
  MR_DEVICE_INLINE void add_values(Block& block, float* sums, const float* probabilities, const T* values, int keys,
                                   float factor) const {
    MR_NO_UNROLL for (int i = block.thread(); i < groups * cache.size; i += cache_threads) {
      const int column = i % cache.size;
      float sum = factor * sums[i];
      MR_UNROLL_8 for (int key = i / cache.size; key < keys; key += groups) sum +=
          probabilities[key] * widen(values[std::int64_t(key) * cache.size + column]);
      sums[i] = sum;
    }
  }
};

class CachedAttention : public Op {
 public:
  CachedAttention(const AttentionSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    dispatch_dtype(spec.dtype, [](auto) {});
    groups_ = int(std::max<std::int64_t>(1, cache_threads / spec.head_size()));
    if (spec.window * spec.head_size() > max_index || spec.src.count() > max_index)
      fail(Exit::config, "attention: a cache of {} positions is more than the kernels can index", spec.window);
    constexpr std::size_t shared_limit = 48 << 10;  // of every GPU
    if (AttendToCache<float>::shared_bytes(int(spec.head_size()), groups_) > shared_limit)
      fail(Exit::config, "attention: heads of {} values are more than its kernel with a cache supports",
           spec.head_size());
  }
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    needs.cache =
        std::size_t(spec_.src[0] * spec_.key_heads * 2 * spec_.window * spec_.head_size()) * size_of(spec_.dtype);
    return needs;
  }
  std::string implementation() const override { return "cache kernels"; }

  void forward(const OpArgs& args) override {
    const std::int64_t positions = spec_.src[0] * spec_.positions();
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Cache<T> cache{static_cast<T*>(args.cache), args.state,       int(spec_.positions()), int(spec_.window),
                           int(spec_.head_size()),      int(spec_.heads), int(spec_.key_heads)};
      const T* const src = args.src[0].as<T>();
      for_each(context_, positions * 2 * spec_.key_heads * spec_.head_size(),
               StoreInCache<T>{cache, src, Divider(spec_.head_size()), Divider(2 * spec_.key_heads),
                               Divider(spec_.positions())});
      const float scale = float(1 / std::sqrt(double(spec_.head_size())));
      launch<cache_threads, 1>(context_, positions * spec_.heads, cache_threads,
                               AttendToCache<T>::shared_bytes(cache.size, groups_),
                               AttendToCache<T>{cache, args.dst.as<T>(), src, scale, groups_});
    });
  }
  void backward(const OpArgs&) override {}

 private:
  AttentionSpec spec_;
  LaunchContext context_;
  int groups_ = 1;
};

}  // namespace

std::unique_ptr<Op> make_cached_attention(const AttentionSpec& spec, const LaunchContext& context) {
  return std::make_unique<CachedAttention>(spec, context);
}

}  // namespace millrace::cuda
