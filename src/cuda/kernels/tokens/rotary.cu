// Rotary position embedding. A thread computes the rotation of n pairs at one position, and applies it to all heads.
#include <algorithm>
#include <cmath>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// The heads of a position: `rotated` of them are turned, the rest up to `heads` are copied. half: half of a head.
struct Heads {
  std::int64_t half;
  int rotated, heads;
  double exponent;  // of the frequency of pair i to the base 2, divided by i
};

#ifdef __CUDACC__
MR_DEVICE_INLINE float cosine_of_turns(float x) { return cospif(2 * x); }
MR_DEVICE_INLINE float sine_of_turns(float x) { return sinpif(2 * x); }
#else
inline float cosine_of_turns(float x) { return float(std::cos(6.283185307179586 * double(x))); }
inline float sine_of_turns(float x) { return float(std::sin(6.283185307179586 * double(x))); }
#endif

// Index i is a pack of n pairs at one position of some rows.
template <class T, int n>
struct Rotate {
  Heads of;
  T* dst;
  const T* src;
  const StepState* state;  // says where the positions begin; null: at 0
  float direction;
  Divider by_packs, by_positions;  // packs of half a head; positions of a row
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    int position = by_packs.split(pack);
    const std::int64_t at = position, pair = std::int64_t(pack) * n;
    by_positions.split(position);
    if (state) position += int(state->position);
    float cosine[n], sine[n];
    for (int k = 0; k < n; ++k) {
      // In double, because float32 would lose the angle of late positions. 2 pi are whole turns, which do not count.
      const double turns = double(position) * exp2(of.exponent * double(pair + k)) * (1 / 6.283185307179586);
      const float part = float(turns - rint(turns));
      cosine[k] = cosine_of_turns(part);
      sine[k] = direction * sine_of_turns(part);
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
};

class Rotary : public Op {
 public:
  Rotary(const RotarySpec& s, const LaunchContext& context)
      : context_(context),
        dtype_(s.dtype),
        rows_(s.src[0]),
        positions_(s.positions()),
        window_(s.window),
        heads_{s.head_size() / 2, int(s.heads + s.key_heads), int(s.heads + 2 * s.key_heads),
               -2 * std::log2(double(s.theta)) / double(s.head_size())} {
    dispatch_dtype(dtype_, [](auto) {});
    const std::int64_t most = std::max(positions_, window_);
    if (most * heads_.half > max_index)
      fail(Exit::config, "rotary positions: {} positions are more than the kernels can index", most);
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override { turn(args.dst, args.src[0], 1, window_ > 0 ? args.state : nullptr); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) turn(args.diff_src[0], args.diff_dst, -1, nullptr);
  }

 private:
  void turn(const Tensor& to, const Tensor& from, float direction, const StepState* state) const {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = to.as<T>();
      const T* const src = from.as<T>();
      heads_.half % n == 0 && aligned(dst, n) && aligned(src, n) ? run<T, n>(dst, src, direction, state)
                                                                 : run<T, 1>(dst, src, direction, state);
    });
  }
  template <class T, int n>
  void run(T* dst, const T* src, float direction, const StepState* state) const {
    const std::int64_t packs = heads_.half / n, of_row = positions_ * packs,
                       elements = positions_ * heads_.heads * 2 * heads_.half;
    in_slices(rows_ * of_row, of_row, max_index, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t at = begin / of_row * elements;
      for_each(context_, count,
               Rotate<T, n>{heads_, dst + at, src + at, state, direction, Divider(packs), Divider(positions_)});
    });
  }

  LaunchContext context_;
  DType dtype_;
  std::int64_t rows_, positions_, window_;
  Heads heads_;
};

}  // namespace

std::unique_ptr<Op> make_rotary(const RotarySpec& spec, const LaunchContext& context) {
  return std::make_unique<Rotary>(spec, context);
}

}  // namespace millrace::cuda
