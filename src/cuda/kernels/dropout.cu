// Dropout. One thread handles a group of pack_size elements of a row, and writes one byte to `saved`: bit k is 1 if
// element k is kept. Backward applies the saved mask.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "millrace/base/rng.hpp"

namespace millrace::cuda {
namespace {

struct Rows {
  std::int64_t row_count, groups;  // elements and groups of a row; the last group may be shorter
  float factor;                    // kept elements are multiplied by it
  bool wide;                       // all groups are complete and aligned

  template <class T>
  MR_DEVICE_INLINE void apply(T* dst, const T* src, std::int64_t row, std::int64_t begin, unsigned kept) const {
    constexpr int n = pack_size<T>;
    const std::int64_t at = row * row_count + begin;
    if (wide) {
      float x[n];
      load(x, src + at);
      for (int k = 0; k < n; ++k) x[k] = kept >> k & 1u ? x[k] * factor : 0;
      store(dst + at, x);
    } else {
      for (int k = 0; k < n && begin + k < row_count; ++k)
        dst[at + k] = narrow<T>(kept >> k & 1u ? widen(src[at + k]) * factor : 0);
    }
  }
};

template <class T>
struct DropoutForward {
  Rows rows;
  T* dst;
  const T* src;
  const std::int64_t* ids;
  std::uint8_t* saved;
  const StepState* state;
  std::uint64_t key;
  float probability;
  bool whole_rows;
  std::int64_t channels;  // that are kept or not as a whole; 0: elements are
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row = i / rows.groups, begin = (i - row * rows.groups) * n;
    const std::uint64_t step = state->rng_step << 32, id = std::uint64_t(ids[row]);
    unsigned kept = 0;
    if (whole_rows) {
      kept = uniform01(philox(key, step, id).v[0]) >= probability ? ~0u : 0u;
    } else if (channels > 0) {
      std::int64_t channel = begin % channels;
      for (int k = 0; k < n; ++k) {
        const Random4 r = philox(key, step | std::uint64_t(channel / 4), id);
        const int word = int(channel % 4);
        const std::uint32_t drawn = word < 2 ? (word == 0 ? r.v[0] : r.v[1]) : (word == 2 ? r.v[2] : r.v[3]);
        kept |= unsigned(uniform01(drawn) >= probability) << k;
        if (++channel == channels) channel = 0;
      }
    } else {
      for (int k = 0; k < n; k += 4) {
        const Random4 r = philox(key, step | std::uint64_t((begin + k) / 4), id);
        for (int j = 0; j < 4; ++j) kept |= unsigned(uniform01(r.v[j]) >= probability) << (k + j);
      }
    }
    saved[i] = std::uint8_t(kept);
    rows.apply(dst, src, row, begin, kept);
  }
};

template <class T>
struct ApplySavedMask {
  Rows rows;
  T* dst;
  const T* src;
  const std::uint8_t* saved;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t row = i / rows.groups, begin = (i - row * rows.groups) * pack_size<T>;
    rows.apply(dst, src, row, begin, saved[i]);
  }
};

class Dropout : public Op {
 public:
  Dropout(const DropoutSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      constexpr int n = pack_size<decltype(zero)>;
      rows_ = {spec_.src.row_count(), (spec_.src.row_count() + n - 1) / n, 1 / (1 - spec_.probability), false};
    });
    if (!(spec_.probability >= 0 && spec_.probability < 1))
      fail(Exit::config, "dropout: probability {:g} is not in [0, 1)", spec_.probability);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::train) needs.saved = std::size_t(groups());
    return needs;
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    if (spec_.mode == Mode::infer)
      return convert(context_, args.dst.data, spec_.dtype, args.src[0].data, spec_.dtype, spec_.src.count());
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* dst = args.dst.as<T>();
      const T* src = args.src[0].as<T>();
      for_each(context_, groups(),
               DropoutForward<T>{rows(dst, src), dst, src, args.src[1].as<std::int64_t>(),
                                 static_cast<std::uint8_t*>(args.saved), args.state,
                                 rng_key(spec_.seed, RngPurpose::dropout) + spec_.layer, spec_.probability,
                                 spec_.whole_rows, spec_.whole_channels ? spec_.src[-1] : 0});
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* dst = args.diff_src[0].as<T>();
      const T* src = args.diff_dst.as<T>();
      for_each(context_, groups(),
               ApplySavedMask<T>{rows(dst, src), dst, src, static_cast<const std::uint8_t*>(args.saved)});
    });
  }

 private:
  std::int64_t groups() const { return spec_.src[0] * rows_.groups; }
  template <class T>
  Rows rows(const T* dst, const T* src) const {
    constexpr int n = pack_size<T>;
    Rows rows = rows_;
    rows.wide = rows.row_count % n == 0 && aligned(dst, n) && aligned(src, n);
    return rows;
  }

  DropoutSpec spec_;
  LaunchContext context_;
  Rows rows_;
};

}  // namespace

std::unique_ptr<Op> make_dropout(const DropoutSpec& spec, const LaunchContext& context) {
  return std::make_unique<Dropout>(spec, context);
}

}  // namespace millrace::cuda
