// Sums and products with constants, and learned values at constant places.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cuda {
namespace {

Buffer table_on_device(Device& device, const void* values, std::size_t bytes) {
  Buffer out(device, MemoryKind::device, std::max<std::size_t>(bytes, 16));
  device.copy_to_device(Stream::compute, out.data(), values, bytes);
  device.synchronize();  // the copy reads `values`
  return out;
}
template <class T>
Buffer table_on_device(Device& device, const std::vector<T>& values) {
  return table_on_device(device, values.data(), values.size() * sizeof(T));
}

// An element that is masked may be infinite or NaN.
MR_DEVICE_INLINE float multiply_add(float x, float scale, float offset) {
  return scale == 0 ? offset : x * scale + offset;
}

template <class T>
struct MultiplyAdd {
  T* dst;
  const T* src;
  float scale, offset;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n];
    load(x, src + i);
    for (int k = 0; k < n; ++k) x[k] = multiply_add(x[k], scale, offset);
    store(dst + i, x);
  }
};

// Index i is a pack of a slice of whole periods. each: every element of the pack has its own entry; otherwise all have
// the same one.
template <class T, int n, bool each>
struct MultiplyAddEntries {
  T* dst;
  const T* src;
  const float *scale, *offset;  // null: the number
  float one_scale, one_offset;
  Divider by_inner, by_period;  // in packs
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int entry = by_inner(int(i));
    by_period.split(entry);
    float x[n];
    load(x, src + i * n);
    if constexpr (each) {
      float s[n], o[n];
      for (int k = 0; k < n; ++k) {
        s[k] = one_scale;
        o[k] = one_offset;
      }
      if (scale) load(s, scale + std::int64_t(entry) * n);
      if (offset) load(o, offset + std::int64_t(entry) * n);
      for (int k = 0; k < n; ++k) x[k] = multiply_add(x[k], s[k], o[k]);
    } else {
      const float s = scale ? scale[entry] : one_scale, o = offset ? offset[entry] : one_offset;
      for (int k = 0; k < n; ++k) x[k] = multiply_add(x[k], s, o);
    }
    store(dst + i * n, x);
  }
};

class Affine : public Op {
 public:
  Affine(const AffineSpec& spec, const LaunchContext& context, Device& device) : context_(context), spec_(spec) {
    spec.check();
    dispatch_dtype(spec.dtype, [](auto) {});
    if (spec.period() * spec.inner > max_index)
      fail(Exit::config, "affine: rows of {} values are more than the kernels can index", spec.period() * spec.inner);
    if (spec.scale.size() > 1) scale_ = table_on_device(device, spec.scale.values());
    if (spec.offset.size() > 1) offset_ = table_on_device(device, spec.offset.values());
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override { apply(args.dst, args.src[0], true); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) apply(args.diff_src[0], args.diff_dst, false);
  }

 private:
  void apply(const Tensor& to, const Tensor& from, bool adds) const {
    const float scale = spec_.scale[0], offset = adds ? spec_.offset[0] : 0;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = to.as<T>();
      const T* const src = from.as<T>();
      const bool wide = aligned(dst, n) && aligned(src, n);
      const bool tables = scale_.data() || (adds && offset_.data());
      if (!tables)
        return vectorized_for_each<n>(context_, spec_.src.count(), wide, MultiplyAdd<T>{dst, src, scale, offset});
      if (wide && spec_.inner % n == 0) return run<T, n, false>(dst, src, adds, spec_.inner / n, spec_.period());
      if (wide && spec_.inner == 1 && spec_.period() % n == 0)
        return run<T, n, true>(dst, src, adds, 1, spec_.period() / n);
      run<T, 1, false>(dst, src, adds, spec_.inner, spec_.period());
    });
  }

  template <class T, int n, bool each>
  void run(T* dst, const T* src, bool adds, std::int64_t inner, std::int64_t period) const {
    const std::int64_t unit = inner * period;
    in_slices(spec_.src.count() / n, unit, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count,
               MultiplyAddEntries<T, n, each>{dst + begin * n, src + begin * n, scale_.template as<float>(),
                                              adds ? offset_.template as<float>() : nullptr, spec_.scale[0],
                                              adds ? spec_.offset[0] : 0, Divider(inner), Divider(period)});
    });
  }

  LaunchContext context_;
  AffineSpec spec_;
  Buffer scale_, offset_;  // empty: one number
};

template <class T>
struct Power {
  T* dst;
  const T* src;
  float exponent;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n];
    load(x, src + i);
    for (int k = 0; k < n; ++k)
      x[k] = exponent == 0.5f ? sqrtf(x[k]) : exponent == -1 ? 1 / x[k] : powf(x[k], exponent);
    store(dst + i, x);
  }
};
template <class T>
struct PowerGradient {
  T* diff_src;
  const T *src, *diff_dst;
  float exponent;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    float x[n], dy[n];
    load(x, src + i);
    load(dy, diff_dst + i);
    for (int k = 0; k < n; ++k) x[k] = x[k] == 0 && exponent < 1 ? 0 : dy[k] * exponent * powf(x[k], exponent - 1);
    store(diff_src + i, x);
  }
};

class PowerOp : public Op {
 public:
  PowerOp(const PowerSpec& spec, const LaunchContext& context) : context_(context), spec_(spec) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.dst.as<T>();
      const T* const src = args.src[0].as<T>();
      vectorized_for_each<n>(context_, spec_.src.count(), aligned(dst, n) && aligned(src, n),
                             Power<T>{dst, src, spec_.exponent});
    });
  }
  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dx = args.diff_src[0].as<T>();
      const T *const x = args.src[0].as<T>(), *const dy = args.diff_dst.as<T>();
      vectorized_for_each<n>(context_, spec_.src.count(), aligned(dx, n) && aligned(x, n) && aligned(dy, n),
                             PowerGradient<T>{dx, x, dy, spec_.exponent});
    });
  }

 private:
  LaunchContext context_;
  PowerSpec spec_;
};

// Index i is a pack of a slice of whole groups.
template <class T, int n>
struct AddEntries {
  T* dst;
  const T* src;
  const float* bias;
  const std::int32_t* index;
  Divider by_packs;  // of a group
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    by_packs.split(pack);
    float x[n];
    load(x, src + i * n);
    const std::int32_t* const own = index + std::int64_t(pack) * n;
    for (int k = 0; k < n; ++k) {
      const std::int32_t entry = own[k];
      if (entry >= 0) x[k] += bias[entry];
    }
    store(dst + i * n, x);
  }
};

// Index i is an entry: the sum of the sums of its positions.
struct SumPositions {
  float* to;
  const float* sums;
  const std::int32_t *begin, *places;
  bool adds;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    float sum = adds ? to[i] : 0;
    for (int p = begin[i]; p < begin[i + 1]; ++p) sum += sums[places[p]];
    to[i] = sum;
  }
};

class IndexedBias : public Op {
 public:
  IndexedBias(const IndexedBiasSpec& spec, const LaunchContext& context, Device& device)
      : context_(context), spec_(spec) {
    spec.check();
    dispatch_dtype(spec.dtype, [](auto) {});
    if (spec.positions() > max_index)
      fail(Exit::config, "indexed bias: {} positions are more than the kernels can index", spec.positions());
    index_ = table_on_device(device, spec.index.values());
    if (spec.mode == Mode::infer) return;
    const Places places(spec.index, spec.entries);
    begin_ = table_on_device(device, places.begin);
    places_ = table_on_device(device, places.places);
    sums_ = align64(std::size_t(spec.positions()) * sizeof(float));
  }
  MemoryRequirements memory_requirements() const override {
    if (spec_.mode == Mode::infer) return {};
    return {sums_ + column_sums_bytes(spec_.groups(), spec_.positions(), context_), 0, 0};
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.dst.as<T>();
      const T* const src = args.src[0].as<T>();
      const float* const bias = args.weight[0].as<float>();
      spec_.positions() % n == 0 && aligned(dst, n) && aligned(src, n) ? add<T, n>(dst, src, bias)
                                                                       : add<T, 1>(dst, src, bias);
    });
  }

  void backward(const OpArgs& args) override {
    if (args.diff_src[0] && args.diff_src[0].data != args.diff_dst.data)
      convert(context_, args.diff_src[0].data, spec_.dtype, args.diff_dst.data, spec_.dtype, spec_.src.count());
    if (!args.diff_weight[0]) return;
    float* const sums = static_cast<float*>(args.workspace);
    column_sums(context_, sums, {args.diff_dst.data, spec_.dtype, spec_.groups(), spec_.positions()}, GradMode::write,
                static_cast<std::byte*>(args.workspace) + sums_);
    for_each(context_, spec_.entries,
             SumPositions{args.diff_weight[0].as<float>(), sums, begin_.as<std::int32_t>(), places_.as<std::int32_t>(),
                          args.mode[0] == GradMode::add});
  }

 private:
  template <class T, int n>
  void add(T* dst, const T* src, const float* bias) const {
    const std::int64_t packs = spec_.positions() / n;
    in_slices(spec_.groups() * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(
          context_, count,
          AddEntries<T, n>{dst + begin * n, src + begin * n, bias, index_.template as<std::int32_t>(), Divider(packs)});
    });
  }

  LaunchContext context_;
  IndexedBiasSpec spec_;
  Buffer index_, begin_, places_;
  std::size_t sums_ = 0;  // bytes of the sums of all positions, in the workspace
};

}  // namespace

std::unique_ptr<Op> make_affine(const AffineSpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<Affine>(spec, context, device);
}
std::unique_ptr<Op> make_power(const PowerSpec& spec, const LaunchContext& context) {
  return std::make_unique<PowerOp>(spec, context);
}
std::unique_ptr<Op> make_indexed_bias(const IndexedBiasSpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<IndexedBias>(spec, context, device);
}

}  // namespace millrace::cuda
