// Rotary position embedding. A thread computes the rotation of n pairs at one position, and applies it to all heads.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// The heads of a position: `rotated` of them are turned, the rest up to `heads` are copied. half: half of a head.
struct Heads {
  std::int64_t positions, half;
  int rotated, heads;
  double turns;  // of the logarithm of theta to the base 2, for each pair: -2 / head size
};

// Index i is a pack of n pairs at one position of one row.
template <class T, int n>
struct Rotate {
  Heads of;
  T* dst;
  const T* src;
  float direction;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t packs = of.half / n, at = i / packs, pair = (i - at * packs) * n;
    float cosine[n], sine[n];
    for (int k = 0; k < n; ++k) {
      // Less whole turns in double, because float32 would lose the angle of late positions.
      const double angle = double(at % of.positions) * exp2(of.turns * double(pair + k));
      const double part = angle - floor(angle * (1 / two_pi)) * two_pi;
      cosine[k] = cosf(float(part));
      sine[k] = direction * sinf(float(part));
    }
    for (int head = 0; head < of.heads; ++head) {
      const std::int64_t first = (at * of.heads + head) * 2 * of.half + pair, second = first + of.half;
      float a[n], b[n];
      load(a, src + first);
      load(b, src + second);
      if (head < of.rotated)
        for (int k = 0; k < n; ++k) {
          const float x = a[k], y = b[k];
          a[k] = x * cosine[k] - y * sine[k];
          b[k] = y * cosine[k] + x * sine[k];
        }
      store(dst + first, a);
      store(dst + second, b);
    }
  }
  static constexpr double two_pi = 6.283185307179586;
};

class Rotary : public Op {
 public:
  Rotary(const RotarySpec& s, const LaunchContext& context)
      : context_(context),
        dtype_(s.dtype),
        rows_(s.src[0]),
        heads_{s.positions(), s.head_size() / 2, int(s.heads + s.key_heads), int(s.heads + 2 * s.key_heads),
               -2 * std::log2(double(s.theta)) / double(s.head_size())} {
    dispatch_dtype(dtype_, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override { turn(args.dst, args.src[0], 1); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) turn(args.diff_src[0], args.diff_dst, -1);
  }

 private:
  void turn(const Tensor& to, const Tensor& from, float direction) const {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = to.as<T>();
      const T* const src = from.as<T>();
      const std::int64_t count = rows_ * heads_.positions * heads_.half;
      if (heads_.half % n == 0 && aligned(dst, n) && aligned(src, n))
        for_each(context_, count / n, Rotate<T, n>{heads_, dst, src, direction});
      else
        for_each(context_, count, Rotate<T, 1>{heads_, dst, src, direction});
    });
  }

  LaunchContext context_;
  DType dtype_;
  std::int64_t rows_;
  Heads heads_;
};

}  // namespace

std::unique_ptr<Op> make_rotary(const RotarySpec& spec, const LaunchContext& context) {
  return std::make_unique<Rotary>(spec, context);
}

}  // namespace millrace::cuda
