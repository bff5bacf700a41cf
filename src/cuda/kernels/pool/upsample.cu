// Upsampling. A thread computes n channels of one element of the target, in both directions: the backward pass sums the
// gradients of all results that read an element of the source.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// One axis: `extent` elements of the source, `factor` times as many of the result.
struct Axis {
  int extent = 1, factor = 1;
  bool linear = false;

  // The two elements of the source that result o reads, and the weight of the second.
  struct Reads {
    int low, high;
    float part;
  };
  MR_DEVICE_INLINE Reads reads(int o) const {
    if (!linear) return {o / factor, o / factor, 0};
    const float x = (float(o) + 0.5f) / float(factor) - 0.5f, inside = x < 0 ? 0 : x;
    const int low = int(inside), high = low + 1 < extent ? low + 1 : low;
    return {low, high, inside - float(low)};
  }
  MR_DEVICE_INLINE float weight(int o, int source) const {
    const Reads r = reads(o);
    return (r.low == source ? 1 - r.part : 0) + (r.high == source ? r.part : 0);
  }
  // The results that may read an element of the source.
  MR_DEVICE_INLINE int first_reader(int source) const {
    const int first = linear ? (source - 1) * factor : source * factor;
    return first < 0 ? 0 : first;
  }
  MR_DEVICE_INLINE int last_reader(int source) const {
    const int last = linear ? (source + 2) * factor - 1 : (source + 1) * factor - 1;
    return last < extent * factor ? last : extent * factor - 1;
  }
};

struct Places {
  Axis axes[3];
  std::int64_t packs;                                                                        // of the channels
  MR_DEVICE_INLINE std::int64_t split(std::int64_t i, bool of_result, int (&at)[3]) const {  // returns the row
    for (int a = 2; a >= 0; --a) {
      const int size = axes[a].extent * (of_result ? axes[a].factor : 1);
      at[a] = int(i % size);
      i /= size;
    }
    return i;
  }
};

template <class T, int n>
struct UpsampleForward {
  Places of;
  T* dst;
  const T* src;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t place = i / of.packs, pack = i - place * of.packs;
    int at[3];
    const std::int64_t row = of.split(place, true, at);
    Axis::Reads reads[3];
    for (int a = 0; a < 3; ++a) reads[a] = of.axes[a].reads(at[a]);
    float total[n];
    for (int k = 0; k < n; ++k) total[k] = 0;
    for (int corner = 0; corner < 8; ++corner) {
      float weight = 1;
      std::int64_t from = row;
      for (int a = 0; a < 3; ++a) {
        const bool second = corner >> a & 1;
        weight *= second ? reads[a].part : 1 - reads[a].part;
        from = from * of.axes[a].extent + (second ? reads[a].high : reads[a].low);
      }
      if (weight == 0) continue;
      float x[n];
      load(x, src + (from * of.packs + pack) * n);
      for (int k = 0; k < n; ++k) total[k] += weight * x[k];
    }
    store(dst + i * n, total);
  }
};

template <class T, int n>
struct UpsampleBackward {
  Places of;
  T* diff_src;
  const T* diff_dst;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t place = i / of.packs, pack = i - place * of.packs;
    int at[3], first[3], last[3];
    const std::int64_t row = of.split(place, false, at);
    for (int a = 0; a < 3; ++a) {
      first[a] = of.axes[a].first_reader(at[a]);
      last[a] = of.axes[a].last_reader(at[a]);
    }
    float total[n];
    for (int k = 0; k < n; ++k) total[k] = 0;
    for (int z = first[0]; z <= last[0]; ++z)
      for (int y = first[1]; y <= last[1]; ++y) {
        const float outer = of.axes[0].weight(z, at[0]) * of.axes[1].weight(y, at[1]);
        if (outer == 0) continue;
        for (int x = first[2]; x <= last[2]; ++x) {
          const float weight = outer * of.axes[2].weight(x, at[2]);
          if (weight == 0) continue;
          const std::int64_t line = (row * of.axes[0].extent * of.axes[0].factor + z) * of.axes[1].extent;
          const std::int64_t from = (line * of.axes[1].factor + y) * of.axes[2].extent * of.axes[2].factor + x;
          float g[n];
          load(g, diff_dst + (from * of.packs + pack) * n);
          for (int k = 0; k < n; ++k) total[k] += weight * g[k];
        }
      }
    store(diff_src + i * n, total);
  }
};

class Upsample : public Op {
 public:
  Upsample(const UpsampleSpec& s, const LaunchContext& context)
      : context_(context), dtype_(s.dtype), channels_(s.src[-1]), count_(s.src.count()), results_(s.dst().count()) {
    dispatch_dtype(dtype_, [](auto) {});
    for (int axis = 1; axis + 1 < s.src.rank; ++axis) {
      if (s.dst()[axis] >= std::int64_t(1) << 30)
        fail(Exit::config, "upsampling: an extent of {} is more than the kernels can index", s.dst()[axis]);
      places_.axes[axis + 3 - s.src.rank + 1] = {int(s.src[axis]), int(s.factor), s.kind == UpsampleSpec::Kind::linear};
    }
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override { run<UpsampleForward>(args.dst, args.src[0], results_); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) run<UpsampleBackward>(args.diff_src[0], args.diff_dst, count_);
  }

 private:
  template <template <class, int> class Kernel>
  void run(const Tensor& to, const Tensor& from, std::int64_t count) const {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      Places places = places_;
      T* const dst = to.as<T>();
      const T* const src = from.as<T>();
      if (channels_ % n == 0 && aligned(dst, n) && aligned(src, n)) {
        places.packs = channels_ / n;
        for_each(context_, count / n, Kernel<T, n>{places, dst, src});
      } else {
        places.packs = channels_;
        for_each(context_, count, Kernel<T, 1>{places, dst, src});
      }
    });
  }

  LaunchContext context_;
  DType dtype_;
  std::int64_t channels_, count_, results_;
  Places places_{};
};

}  // namespace

std::unique_ptr<Op> make_upsample(const UpsampleSpec& spec, const LaunchContext& context) {
  return std::make_unique<Upsample>(spec, context);
}

}  // namespace millrace::cuda
