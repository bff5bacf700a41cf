// Softmax. A block computes whole positions, one after the other; its threads hold a pack of consecutive channels each.
// Positions that are wider than what the registers of a block hold are read again from the cache.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"

namespace millrace::cuda {
namespace {

constexpr int softmax_threads = 1024;

struct SoftmaxRows {
  std::int64_t count;
  int channels;
};

template <class T, int n>
struct SoftmaxForward {
  SoftmaxRows rows;
  T* dst;
  const T* src;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int first = block.thread() * n, step = block.threads() * n;
    for (std::int64_t p = block.index(); p < rows.count; p += block.blocks()) {
      const T* const from = src + p * rows.channels;
      T* const to = dst + p * rows.channels;
      float x[n], largest = -INFINITY;
      for (int c = first; c < rows.channels; c += step) {
        load(x, from + c);
        for (int k = 0; k < n; ++k) largest = x[k] > largest ? x[k] : largest;
      }
      largest = block.max(largest);
      float sum = 0;
      for (int c = first; c < rows.channels; c += step) {
        load(x, from + c);
        for (int k = 0; k < n; ++k) sum += expf(x[k] - largest);
      }
      const float factor = 1 / block.sum(sum);
      for (int c = first; c < rows.channels; c += step) {
        load(x, from + c);
        for (int k = 0; k < n; ++k) x[k] = expf(x[k] - largest) * factor;
        store(to + c, x);
      }
    }
  }
};

template <class T, int n>
struct SoftmaxBackward {
  SoftmaxRows rows;
  T* diff_src;
  const T *dst, *diff_dst;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int first = block.thread() * n, step = block.threads() * n;
    for (std::int64_t p = block.index(); p < rows.count; p += block.blocks()) {
      const std::int64_t begin = p * rows.channels;
      float y[n], dy[n], products = 0;
      for (int c = first; c < rows.channels; c += step) {
        load(y, dst + begin + c);
        load(dy, diff_dst + begin + c);
        for (int k = 0; k < n; ++k) products += y[k] * dy[k];
      }
      products = block.sum(products);
      for (int c = first; c < rows.channels; c += step) {
        load(y, dst + begin + c);
        load(dy, diff_dst + begin + c);
        for (int k = 0; k < n; ++k) y[k] *= dy[k] - products;
        store(diff_src + begin + c, y);
      }
    }
  }
};

class Softmax : public Op {
 public:
  Softmax(const SoftmaxSpec& spec, const LaunchContext& context)
      : context_(context), spec_(spec), rows_{spec.positions(), int(spec.channels())} {
    if (spec.src.count() == 0 || spec.channels() > max_index)
      fail(Exit::config, "softmax: the kernels cannot index the channels of {}", spec.src.str());
    dispatch_dtype(spec.dtype, [&](auto zero) {
      constexpr int n = pack_size<decltype(zero)>;
      wide_ = spec.channels() % n == 0;
      threads_ = even_threads(wide_ ? spec.channels() / n : spec.channels(), softmax_threads);
    });
    const std::int64_t resident = std::clamp(2048 / threads_, 1, 16);
    blocks_ = std::min<std::int64_t>(rows_.count, resident * context_.multiprocessors);
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch([&](auto zero, auto n) {
      using T = decltype(zero);
      launch<softmax_threads, 1>(context_, blocks_, threads_, 0,
                                 SoftmaxForward<T, n()>{rows_, args.dst.as<T>(), args.src[0].as<T>()});
    });
  }
  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    dispatch([&](auto zero, auto n) {
      using T = decltype(zero);
      launch<softmax_threads, 1>(
          context_, blocks_, threads_, 0,
          SoftmaxBackward<T, n()>{rows_, args.diff_src[0].as<T>(), args.dst.as<T>(), args.diff_dst.as<T>()});
    });
  }

 private:
  template <class Body>
  void dispatch(const Body& body) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      wide_ ? body(zero, std::integral_constant<int, pack_size<T>>{}) : body(zero, std::integral_constant<int, 1>{});
    });
  }

  LaunchContext context_;
  SoftmaxSpec spec_;
  SoftmaxRows rows_;
  bool wide_ = false;
  int threads_ = 0;
  std::int64_t blocks_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_softmax(const SoftmaxSpec& spec, const LaunchContext& context) {
  return std::make_unique<Softmax>(spec, context);
}

}  // namespace millrace::cuda
