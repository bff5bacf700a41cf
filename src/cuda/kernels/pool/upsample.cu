// Upsampling. A thread computes n channels of one element of the target, in both directions: the backward pass sums the
// gradients of all results that read an element of the source.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
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
  Divider by_packs, by_extent[3];  // packs of the channels; extents of the target
  // Index i is a pack of some rows of the target. Returns its row.
  MR_DEVICE_INLINE std::int64_t split(std::int64_t i, int& pack, int (&at)[3]) const {
    pack = int(i);
    int place = by_packs.split(pack);
    for (int a = 2; a >= 0; --a) {
      at[a] = place;
      place = by_extent[a].split(at[a]);
    }
    return place;
  }
};

template <class T, int n>
struct UpsampleForward {
  Places of;
  T* dst;
  const T* src;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack, at[3];
    const std::int64_t row = of.split(i, pack, at), packs = of.by_packs.divisor;
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
      load(x, src + (from * packs + pack) * n);
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
    int pack, at[3], first[3], last[3];
    const std::int64_t row = of.split(i, pack, at), packs = of.by_packs.divisor;
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
          load(g, diff_dst + (from * packs + pack) * n);
          for (int k = 0; k < n; ++k) total[k] += weight * g[k];
        }
      }
    store(diff_src + i * n, total);
  }
};

class Upsample : public Op {
 public:
  Upsample(const UpsampleSpec& s, const LaunchContext& context)
      : context_(context),
        dtype_(s.dtype),
        channels_(s.src[-1]),
        rows_(s.src[0]),
        count_(s.src.count()),
        results_(s.dst().count()) {
    dispatch_dtype(dtype_, [](auto) {});
    if (s.dst().row_count() > max_index)
      fail(Exit::config, "upsampling: samples of {} values are more than the kernels can index", s.dst().row_count());
    for (int axis = 1; axis + 1 < s.src.rank; ++axis) {
      places_.axes[axis + 3 - s.src.rank + 1] = {int(s.src[axis]), int(s.factor), s.kind == UpsampleSpec::Kind::linear};
    }
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void forward(const OpArgs& args) override { run<UpsampleForward>(args.dst, args.src[0], results_, count_); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) run<UpsampleBackward>(args.diff_src[0], args.diff_dst, count_, results_);
  }

 private:
  template <template <class, int> class Kernel>
  void run(const Tensor& to, const Tensor& from, std::int64_t count, std::int64_t sources) const {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      const bool wide = channels_ % n == 0 && aligned(to.as<T>(), n) && aligned(from.as<T>(), n);
      wide ? run_in_packs<Kernel, T, n>(to, from, count, sources)
           : run_in_packs<Kernel, T, 1>(to, from, count, sources);
    });
  }
  // count, sources: elements of the tensors that are written and read.
  template <template <class, int> class Kernel, class T, int n>
  void run_in_packs(const Tensor& to, const Tensor& from, std::int64_t count, std::int64_t sources) const {
    Places places = places_;
    places.by_packs = Divider(channels_ / n);
    for (int a = 0; a < 3; ++a)
      places.by_extent[a] =
          Divider(std::int64_t(places.axes[a].extent) * (count == count_ ? 1 : places.axes[a].factor));
    const std::int64_t of_row = count / n / rows_;
    in_slices(count / n, of_row, max_index, [&](std::int64_t begin, std::int64_t many) {
      const std::int64_t row = begin / of_row;
      for_each(context_, many, Kernel<T, n>{places, to.as<T>() + begin * n, from.as<T>() + row * (sources / rows_)});
    });
  }

  LaunchContext context_;
  DType dtype_;
  std::int64_t channels_, rows_, count_, results_;  // elements of the source and of the result
  Places places_{};
};

}  // namespace

std::unique_ptr<Op> make_upsample(const UpsampleSpec& spec, const LaunchContext& context) {
  return std::make_unique<Upsample>(spec, context);
}

}  // namespace millrace::cuda
