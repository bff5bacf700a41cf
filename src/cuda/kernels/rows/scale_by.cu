// A factor for each row and channel. The gradient of the factors is a sum over positions, in parts.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/rows/row_sums.hpp"

namespace millrace::cuda {
namespace {

using rows::Extents, rows::Packs;

template <class T, int n>
struct ScaleByFactor {
  Packs packs;
  int channels;
  T* dst;
  const T *src, *factors;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    float x[n], f[n];
    load(x, src + i * n);
    load(f, factors + packs.values(i, n, channels));
    for (int k = 0; k < n; ++k) x[k] *= f[k];
    store(dst + i * n, x);
  }
};

template <class T, int n>
struct ProductTerms {
  static constexpr int pack = n, kinds = 1, ahead = 4;
  const T *a, *b;
  struct Loaded {
    Pack<T, n> a, b;
  };
  MR_DEVICE_INLINE void prepare(std::int64_t, int, const Extents&) {}
  MR_DEVICE_INLINE Loaded load(std::int64_t at) const {
    return {*reinterpret_cast<const Pack<T, n>*>(a + at), *reinterpret_cast<const Pack<T, n>*>(b + at)};
  }
  MR_DEVICE_INLINE void add(float (&sums)[1][n], const Loaded& of) const {
    for (int k = 0; k < n; ++k) sums[0][k] += widen(of.a.v[k]) * widen(of.b.v[k]);
  }
};

// Index i is a channel of a row in a slice.
template <class T>
struct FactorGradient {
  Extents extents;
  Divider by_channels;
  T* to;
  const float* sums;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int channel = int(i);
    const int row = by_channels.split(channel);
    to[i] = narrow<T>(float(rows::total(sums, extents, 1, 0, row, channel)));
  }
};

class ScaleBy : public Op {
 public:
  ScaleBy(const ScaleBySpec& s, const LaunchContext& context)
      : context_(context), dtype_(s.dtype), extents_("scale by", s.src[0], s.positions(), s.src[-1], context) {
    s.check();
    dispatch_dtype(dtype_, [](auto) {});
    workspace_ = s.mode == Mode::train ? std::size_t(extents_.sum_count(1)) * sizeof(float) : 0;
  }
  MemoryRequirements memory_requirements() const override { return {workspace_, 0, 0}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override { scale(args.dst, args.src[0], args.src[1]); }

  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) scale(args.diff_src[0], args.diff_dst, args.src[1]);
    if (!args.diff_src[1]) return;
    float* const sums = static_cast<float*>(args.workspace);
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      const T *const src = args.src[0].as<T>(), *const dy = args.diff_dst.as<T>();
      rows::with_pack<T>(extents_.channels, {src, dy}, [&](auto pack) {
        rows::sum_rows(context_, extents_, sums, ProductTerms<T, pack()>{src, dy});
      });
      T* const to = args.diff_src[1].as<T>();
      in_slices(
          extents_.rows * extents_.channels, extents_.channels, max_index, [&](std::int64_t begin, std::int64_t count) {
            for_each(
                context_, count,
                FactorGradient<T>{extents_, Divider(extents_.channels), to + begin, sums + begin * extents_.parts});
          });
    });
  }

 private:
  void scale(const Tensor& to, const Tensor& from, const Tensor& factors) const {
    dispatch_dtype(dtype_, [&](auto zero) {
      using T = decltype(zero);
      T* const dst = to.as<T>();
      const T *const src = from.as<T>(), *const by = factors.as<T>();
      rows::with_pack<T>(extents_.channels, {dst, src, by}, [&](auto pack) {
        constexpr int n = pack();
        rows::in_row_slices(extents_, n,
                            [&](const Packs& packs, std::int64_t row, std::int64_t begin, std::int64_t count) {
                              for_each(context_, count,
                                       ScaleByFactor<T, n>{packs, extents_.channels, dst + begin, src + begin,
                                                           by + row * extents_.channels});
                            });
      });
    });
  }

  LaunchContext context_;
  DType dtype_;
  Extents extents_;
  std::size_t workspace_;
};

}  // namespace

std::unique_ptr<Op> make_scale_by(const ScaleBySpec& spec, const LaunchContext& context) {
  return std::make_unique<ScaleBy>(spec, context);
}

}  // namespace millrace::cuda
