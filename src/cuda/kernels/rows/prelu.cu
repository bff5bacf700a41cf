// A slope below zero: learned ones (PReLU), or a constant (leaky ReLU). Backward computes both gradients in one pass:
// each thread handles one pack of channels in a part of the rows, and writes the sums of its part, which column_sums()
// adds up.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cuda {
namespace {

struct Slopes {
  const float* learned;  // null: the constant
  bool by_channel;
  float constant;
  template <int n>
  MR_DEVICE_INLINE void load_into(float (&to)[n], int pack) const {
    if (by_channel) {
      load(to, learned + std::int64_t(pack) * n);
    } else {
      const float slope = learned ? *learned : constant;
      for (int k = 0; k < n; ++k) to[k] = slope;
    }
  }
};

// Index i is a pack of n elements of a slice of the tensor, which begins with a position.
template <class T, int n>
struct PreluForward {
  T* dst;
  const T* src;
  Slopes slopes;
  Divider by_packs;  // of the channels
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    by_packs.split(pack);
    float x[n], slope[n];
    load(x, src + i * n);
    slopes.load_into(slope, pack);
    for (int k = 0; k < n; ++k) x[k] = x[k] > 0 ? x[k] : slope[k] * x[k];
    store(dst + i * n, x);
  }
};

// Index i is a pack of channels in one part of the rows.
template <class T, int n>
struct PreluBackward {
  T* diff_src;  // null: not requested
  float* sums;  // (parts, channels); null: not requested
  const T *src, *diff_dst;
  Slopes slopes;
  std::int64_t rows, part_rows;
  Divider by_packs;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const std::int64_t packs = by_packs.divisor, part = by_packs.split(pack), part_end = (part + 1) * part_rows;
    const std::int64_t end = part_end < rows ? part_end : rows;
    float slope[n], sum[n];
    slopes.load_into(slope, pack);
    for (int k = 0; k < n; ++k) sum[k] = 0;
    for (std::int64_t row = part * part_rows; row < end; ++row) {
      const std::int64_t at = (row * packs + pack) * n;
      float x[n], g[n];
      load(x, src + at);
      load(g, diff_dst + at);
      for (int k = 0; k < n; ++k) {
        sum[k] += x[k] > 0 ? 0 : x[k] * g[k];
        g[k] = x[k] > 0 ? g[k] : slope[k] * g[k];
      }
      if (diff_src) store(diff_src + at, g);
    }
    if (sums) store(sums + i * n, sum);
  }
};

class Prelu : public Op {
 public:
  Prelu(const PreluSpec& s, const LaunchContext& context)
      : context_(context), spec_(s), channels_(s.channels()), rows_(s.src.count() / s.channels()) {
    s.check();
    dispatch_dtype(s.dtype, [](auto) {});
    if (channels_ > max_index) fail(Exit::config, "prelu: {} channels are more than the kernels can index", channels_);
    const std::int64_t threads = std::int64_t(context.multiprocessors) * 2048;
    parts_ = std::clamp<std::int64_t>(threads * 4 / channels_, 1, rows_);
  }
  MemoryRequirements memory_requirements() const override {
    if (spec_.mode == Mode::infer || spec_.slopes == 0) return {};
    const std::size_t of_parts = column_sums_bytes(parts_, channels_, context_),
                      of_channels = column_sums_bytes(channels_, 1, context_);
    return {part_bytes() + channel_bytes() + std::max(of_parts, of_channels), 0, 0};
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const dst = args.dst.as<T>();
      const T* const src = args.src[0].as<T>();
      wide<T>(dst, src) ? run<T, n>(dst, src, slopes(args)) : run<T, 1>(dst, src, slopes(args));
    });
  }

  void backward(const OpArgs& args) override {
    std::byte* const workspace = static_cast<std::byte*>(args.workspace);
    float* const sums = args.diff_weight[0] ? reinterpret_cast<float*>(workspace) : nullptr;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      T* const diff = args.diff_src[0] ? args.diff_src[0].as<T>() : nullptr;
      const T *const src = args.src[0].as<T>(), *const g = args.diff_dst.as<T>();
      wide<T>(diff, src) && aligned(g, n) ? run_backward<T, n>({diff, sums, src, g, slopes(args)})
                                          : run_backward<T, 1>({diff, sums, src, g, slopes(args)});
    });
    if (!sums) return;
    float* const to = args.diff_weight[0].as<float>();
    float* const of_channels = reinterpret_cast<float*>(workspace + part_bytes());
    void* const rest = workspace + part_bytes() + channel_bytes();
    const RowMajorMatrix parts{sums, DType::f32, parts_, channels_};
    if (one_for_all()) {
      column_sums(context_, of_channels, parts, GradMode::write, rest);
      column_sums(context_, to, {of_channels, DType::f32, channels_, 1}, args.mode[0], rest);
    } else {
      column_sums(context_, to, parts, args.mode[0], rest);
    }
  }

 private:
  bool one_for_all() const { return spec_.slopes == 1 && channels_ > 1; }
  std::size_t part_bytes() const { return align64(std::size_t(parts_ * channels_) * sizeof(float)); }
  std::size_t channel_bytes() const { return one_for_all() ? align64(std::size_t(channels_) * sizeof(float)) : 0; }
  Slopes slopes(const OpArgs& args) const {
    return {spec_.slopes > 0 ? args.weight[0].as<float>() : nullptr, spec_.slopes > 1, spec_.slope};
  }
  template <class T, int n>
  void run(T* dst, const T* src, const Slopes& slopes) const {
    const std::int64_t packs = channels_ / n;
    in_slices(rows_ * packs, packs, max_index, [&](std::int64_t begin, std::int64_t count) {
      for_each(context_, count, PreluForward<T, n>{dst + begin * n, src + begin * n, slopes, Divider(packs)});
    });
  }
  template <class T>
  struct Gradients {
    T* diff_src;
    float* sums;
    const T *src, *diff_dst;
    Slopes slopes;
  };
  template <class T, int n>
  void run_backward(const Gradients<T>& g) const {
    const std::int64_t part_rows = (rows_ + parts_ - 1) / parts_;
    for_each(
        context_, parts_ * channels_ / n,
        PreluBackward<T, n>{g.diff_src, g.sums, g.src, g.diff_dst, g.slopes, rows_, part_rows, Divider(channels_ / n)});
  }
  template <class T>
  bool wide(const T* a, const T* b) const {
    constexpr int n = pack_size<T>;
    return channels_ % n == 0 && aligned(a, n) && aligned(b, n);
  }

  LaunchContext context_;
  PreluSpec spec_;
  std::int64_t channels_, rows_, parts_ = 1;
};

}  // namespace

std::unique_ptr<Op> make_prelu(const PreluSpec& spec, const LaunchContext& context) {
  return std::make_unique<Prelu>(spec, context);
}

}  // namespace millrace::cuda
