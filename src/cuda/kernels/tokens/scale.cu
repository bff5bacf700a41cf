// A learned factor for each channel. Backward computes both gradients in one pass: each thread handles one pack of
// channels in a part of the rows, and writes the sums of its part, which column_sums() adds up.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// Index i is a pack of n elements of a slice of the tensor, which begins with a position.
template <class T, int n>
struct ScaleForward {
  T* dst;
  const T* src;
  const float* weight;
  Divider by_packs;  // of the channels
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    by_packs.split(pack);
    float x[n], w[n];
    load(x, src + i * n);
    load(w, weight + std::int64_t(pack) * n);
    for (int k = 0; k < n; ++k) x[k] *= w[k];
    store(dst + i * n, x);
  }
};

// Index i is a pack of channels in one part of the rows.
template <class T, int n>
struct ScaleBackward {
  T* diff_src;  // null: not requested
  float* sums;  // (parts, channels); null: not requested
  const T *src, *diff_dst;
  const float* weight;
  std::int64_t rows, part_rows;
  Divider by_packs;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const std::int64_t packs = by_packs.divisor, part = by_packs.split(pack), part_end = (part + 1) * part_rows;
    const std::int64_t end = part_end < rows ? part_end : rows;
    float w[n], sum[n];
    load(w, weight + std::int64_t(pack) * n);
    for (int k = 0; k < n; ++k) sum[k] = 0;
    for (std::int64_t row = part * part_rows; row < end; ++row) {
      const std::int64_t at = (row * packs + pack) * n;
      float x[n], g[n];
      load(x, src + at);
      load(g, diff_dst + at);
      for (int k = 0; k < n; ++k) {
        sum[k] += x[k] * g[k];
        g[k] *= w[k];
      }
      if (diff_src) store(diff_src + at, g);
    }
    if (sums) store(sums + i * n, sum);
  }
};

class Scale : public Op {
 public:
  Scale(const ScaleSpec& s, const LaunchContext& context)
      : context_(context), channels_(s.src[-1]), rows_(s.src.count() / s.src[-1]), dtype_(s.dtype) {
    dispatch_dtype(dtype_, [](auto) {});
    const std::int64_t threads = std::int64_t(context.multiprocessors) * 2048;
    parts_ = std::clamp<std::int64_t>(threads * 4 / channels_, 1, rows_);
    if (channels_ > max_index) fail(Exit::config, "scale: {} channels are more than the kernels can index", channels_);
  }
  MemoryRequirements memory_requirements() const override {
    return {std::size_t(parts_ * channels_) * sizeof(float) + column_sums_bytes(parts_, channels_, context_), 0, 0};
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.dst.as<T>();
      const T* const src = args.src[0].as<T>();
      const float* const weight = args.weight[0].as<float>();
      wide<T>(dst, src) ? run<T, n>(dst, src, weight) : run<T, 1>(dst, src, weight);
    });
  }

  void backward(const OpArgs& args) override {
    float* const sums = args.diff_weight[0] ? static_cast<float*>(args.workspace) : nullptr;
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const diff = args.diff_src[0] ? args.diff_src[0].as<T>() : nullptr;
      const T *const src = args.src[0].as<T>(), *const g = args.diff_dst.as<T>();
      const float* const weight = args.weight[0].as<float>();
      const std::int64_t part_rows = (rows_ + parts_ - 1) / parts_;
      if (wide<T>(diff, src) && aligned(g, n))
        for_each(context_, parts_ * channels_ / n,
                 ScaleBackward<T, n>{diff, sums, src, g, weight, rows_, part_rows, Divider(channels_ / n)});
      else
        for_each(context_, parts_ * channels_,
                 ScaleBackward<T, 1>{diff, sums, src, g, weight, rows_, part_rows, Divider(channels_)});
    });
    if (sums)
      column_sums(context_, args.diff_weight[0].as<float>(), {sums, DType::f32, parts_, channels_}, args.mode[0],
                  sums + parts_ * channels_);
  }

 private:
  template <class T, int n>
  void run(T* dst, const T* src, const float* weight) const {
    const std::int64_t packs = channels_ / n;
    in_slices(rows_ * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count, ScaleForward<T, n>{dst + begin * n, src + begin * n, weight, Divider(packs)});
    });
  }
  template <class T>
  bool wide(const T* a, const T* b) const {
    constexpr int n = pack_size<T>;
    return channels_ % n == 0 && aligned(a, n) && aligned(b, n);
  }

  LaunchContext context_;
  std::int64_t channels_, rows_, parts_ = 1;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Op> make_scale(const ScaleSpec& spec, const LaunchContext& context) {
  return std::make_unique<Scale>(spec, context);
}

}  // namespace millrace::cuda
