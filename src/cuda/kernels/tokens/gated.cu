// Gated linear units: dst = kind(a) * b, where a and b are the halves of the channels.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/activation_functions.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

struct NoActivation {
  static constexpr Activation kind = Activation::none;
  template <class T>
  static MR_DEVICE_INLINE float value(float x) {
    return x;
  }
  template <class T>
  static MR_DEVICE_INLINE float gradient(float dy, float) {
    return dy;
  }
};

// Index i is a pack of n elements of a slice of the result, which begins with a position.
template <class Kind, class T, int n>
struct GatedForward {
  T* dst;
  const T* src;
  Divider by_packs;  // of the channels
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t packs = by_packs.divisor;
    const T* const at = src + (i + by_packs(int(i)) * packs) * n;
    float a[n], b[n];
    load(a, at);
    load(b, at + packs * n);
    for (int k = 0; k < n; ++k) a[k] = Kind::template value<T>(a[k]) * b[k];
    store(dst + i * n, a);
  }
};

template <class Kind, class T, int n>
struct GatedBackward {
  T* diff_src;
  const T *diff_dst, *src;
  Divider by_packs;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t packs = by_packs.divisor, first = (i + by_packs(int(i)) * packs) * n, second = first + packs * n;
    float a[n], b[n], g[n];
    load(a, src + first);
    load(b, src + second);
    load(g, diff_dst + i * n);
    for (int k = 0; k < n; ++k) {
      const float y = Kind::template value<T>(a[k]);
      const float da = Kind::template gradient<T>(g[k] * b[k], backward_reads_src(Kind::kind) ? a[k] : y);
      b[k] = g[k] * y;
      a[k] = da;
    }
    store(diff_src + first, a);
    store(diff_src + second, b);
  }
};

template <class Kind>
class Gated : public Op {
 public:
  Gated(const GatedSpec& s, const LaunchContext& context)
      : context_(context), channels_(s.channels()), count_(s.dst().count()), dtype_(s.dtype) {
    dispatch_dtype(dtype_, [](auto) {});
    if (channels_ > max_index)
      fail(Exit::config, "gated linear unit: {} channels are more than the kernels can index", channels_);
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.dst.as<T>();
      const T* const src = args.src[0].as<T>();
      channels_ % n == 0 && aligned(dst, n) && aligned(src, n) ? run<T, n>(dst, src) : run<T, 1>(dst, src);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const diff = args.diff_src[0].as<T>();
      const T *const src = args.src[0].as<T>(), *const g = args.diff_dst.as<T>();
      const bool wide = channels_ % n == 0 && aligned(diff, n) && aligned(src, n) && aligned(g, n);
      wide ? run_back<T, n>(diff, src, g) : run_back<T, 1>(diff, src, g);
    });
  }

 private:
  template <class T, int n>
  void run(T* dst, const T* src) const {
    const std::int64_t packs = channels_ / n;
    in_slices(count_ / n, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count, GatedForward<Kind, T, n>{dst + begin * n, src + 2 * begin * n, Divider(packs)});
    });
  }
  template <class T, int n>
  void run_back(T* diff, const T* src, const T* g) const {
    const std::int64_t packs = channels_ / n;
    in_slices(count_ / n, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count,
               GatedBackward<Kind, T, n>{diff + 2 * begin * n, g + begin * n, src + 2 * begin * n, Divider(packs)});
    });
  }

  LaunchContext context_;
  std::int64_t channels_, count_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Op> make_gated(const GatedSpec& spec, const LaunchContext& context) {
  if (spec.kind == Activation::none) return std::make_unique<Gated<NoActivation>>(spec, context);
  return with_activation(spec.kind, [&](auto kind) -> std::unique_ptr<Op> {
    return std::make_unique<Gated<decltype(kind)>>(spec, context);
  });
}

}  // namespace millrace::cuda
