// Group norm. Forward: sums over the positions of parts of each row, then the moments of each group, which become a
// scale and a bias for each row and channel, then the result. Backward is alike. Sums of x are those of its difference
// to the first position of the row, so that a mean that is large beside the deviation costs no digits.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/rows/row_sums.hpp"

namespace millrace::cuda {
namespace {

using rows::Extents, rows::Packs;

template <class T, int n>
struct MomentTerms {
  static constexpr int pack = n, kinds = 2, ahead = 4;
  const T* src;
  float shift[n];

  MR_DEVICE_INLINE void prepare(std::int64_t row, int channel, const Extents& e) {
    cuda::load(shift, src + row * e.positions * e.channels + channel);
  }
  MR_DEVICE_INLINE Pack<T, n> load(std::int64_t at) const { return *reinterpret_cast<const Pack<T, n>*>(src + at); }
  MR_DEVICE_INLINE void add(float (&sums)[2][n], const Pack<T, n>& x) const {
    for (int k = 0; k < n; ++k) {
      const float d = widen(x.v[k]) - shift[k];
      sums[0][k] += d;
      sums[1][k] += d * d;
    }
  }
};

// The moments of each row and group, (rows, groups) each.
struct Saved {
  float *mean, *inverse;
  int groups, size;  // size: channels of a group
  MR_DEVICE_INLINE std::int64_t at(std::int64_t row, int channel) const {
    return row * groups + int(unsigned(channel) / unsigned(size));
  }
};

MR_DEVICE_INLINE double gamma_of(const float* gamma, int channel) { return gamma ? double(gamma[channel]) : 1; }

// Block b computes the moments of row b / groups and group b % groups, and scale and bias of its channels.
template <class T>
struct GroupMoments {
  Extents extents;
  Saved saved;  // mean is null in Mode::infer
  float epsilon;
  const float *sums, *gamma, *beta;  // gamma and beta are null if they are 1 and 0
  const T* src;
  float *scale, *bias;  // (rows, channels)

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const unsigned row = unsigned(block.index()) / unsigned(saved.groups);
    const int first = int(unsigned(block.index()) - row * unsigned(saved.groups)) * saved.size;
    const T* const shift = src + std::int64_t(row) * extents.positions * extents.channels;
    const double positions = double(extents.positions), count = positions * double(saved.size);
    const auto mean_of = [&](int c) {
      return double(widen(shift[c])) + rows::total(sums, extents, 2, 0, row, c) / positions;
    };
    double sum = 0, squares = 0;
    for (int c = first + block.thread(); c < first + saved.size; c += block.threads()) sum += mean_of(c);
    const double mean = block.sum(sum) / double(saved.size);
    for (int c = first + block.thread(); c < first + saved.size; c += block.threads()) {
      const double own = rows::total(sums, extents, 2, 0, row, c), apart = mean_of(c) - mean;
      squares += rows::total(sums, extents, 2, 1, row, c) - own * own / positions + positions * apart * apart;
    }
    const double variance = block.sum(squares) / count;
    const double inverse = 1 / sqrt((variance < 0 ? 0 : variance) + double(epsilon));  // keeps NaN
    if (saved.mean && block.thread() == 0) {
      saved.mean[block.index()] = float(mean);
      saved.inverse[block.index()] = float(inverse);
    }
    for (int c = first + block.thread(); c < first + saved.size; c += block.threads()) {
      const std::int64_t at = std::int64_t(row) * extents.channels + c;
      const double factor = gamma_of(gamma, c) * inverse;
      scale[at] = float(factor);
      bias[at] = float((beta ? double(beta[c]) : 0) - mean * factor);
    }
  }
};

template <class T, int n>
struct Normalise {
  Packs packs;
  int channels;
  T* dst;
  const T* src;
  const float *scale, *bias;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t at = packs.values(i, n, channels);
    float x[n], s[n], b[n];
    load(x, src + i * n);
    load(s, scale + at);
    load(b, bias + at);
    for (int k = 0; k < n; ++k) x[k] = x[k] * s[k] + b[k];
    store(dst + i * n, x);
  }
};

// Sums of dy, and of dy times the normalised x.
template <class T, int n>
struct GradientTerms {
  static constexpr int pack = n, kinds = 2, ahead = 2;
  const T *src, *diff_dst;
  Saved saved;
  float mean[n], inverse[n];
  struct Loaded {
    Pack<T, n> x, dy;
  };
  MR_DEVICE_INLINE void prepare(std::int64_t row, int channel, const Extents&) {
    for (int k = 0; k < n; ++k) {
      mean[k] = saved.mean[saved.at(row, channel + k)];
      inverse[k] = saved.inverse[saved.at(row, channel + k)];
    }
  }
  MR_DEVICE_INLINE Loaded load(std::int64_t at) const {
    return {*reinterpret_cast<const Pack<T, n>*>(src + at), *reinterpret_cast<const Pack<T, n>*>(diff_dst + at)};
  }
  MR_DEVICE_INLINE void add(float (&sums)[2][n], const Loaded& of) const {
    for (int k = 0; k < n; ++k) {
      const float dy = widen(of.dy.v[k]);
      sums[0][k] += dy;
      sums[1][k] += dy * ((widen(of.x.v[k]) - mean[k]) * inverse[k]);
    }
  }
};

// dx = (dy * gamma - mean_g - xhat * mean_gx) * inverse = dy * scale + x * slope + bias. Blocks as of GroupMoments.
struct GroupGradients {
  Extents extents;
  Saved saved;
  const float *sums, *gamma;
  float *scale, *slope, *bias;      // (rows, channels)
  float *gamma_parts, *beta_parts;  // (rows, channels): the gradients of gamma and beta of each row

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const unsigned row = unsigned(block.index()) / unsigned(saved.groups);
    const int first = int(unsigned(block.index()) - row * unsigned(saved.groups)) * saved.size;
    const double count = double(extents.positions) * double(saved.size);
    double sum_g = 0, sum_gx = 0;
    for (int c = first + block.thread(); c < first + saved.size; c += block.threads()) {
      const std::int64_t at = std::int64_t(row) * extents.channels + c;
      const double of_beta = rows::total(sums, extents, 2, 0, row, c),
                   of_gamma = rows::total(sums, extents, 2, 1, row, c);
      beta_parts[at] = float(of_beta);
      gamma_parts[at] = float(of_gamma);
      sum_g += gamma_of(gamma, c) * of_beta;
      sum_gx += gamma_of(gamma, c) * of_gamma;
    }
    const double mean_g = block.sum(sum_g) / count, mean_gx = block.sum(sum_gx) / count;
    const double mean = double(saved.mean[block.index()]), inverse = double(saved.inverse[block.index()]);
    for (int c = first + block.thread(); c < first + saved.size; c += block.threads()) {
      const std::int64_t at = std::int64_t(row) * extents.channels + c;
      const double along = -mean_gx * inverse * inverse;
      scale[at] = float(gamma_of(gamma, c) * inverse);
      slope[at] = float(along);
      bias[at] = float(-mean_g * inverse - mean * along);
    }
  }
};

template <class T, int n>
struct Gradient {
  Packs packs;
  int channels;
  T* diff_src;
  const T *src, *diff_dst;
  const float *scale, *slope, *bias;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t at = packs.values(i, n, channels);
    float x[n], dy[n], s[n], l[n], b[n];
    load(x, src + i * n);
    load(dy, diff_dst + i * n);
    load(s, scale + at);
    load(l, slope + at);
    load(b, bias + at);
    for (int k = 0; k < n; ++k) dy[k] = dy[k] * s[k] + x[k] * l[k] + b[k];
    store(diff_src + i * n, dy);
  }
};

class GroupNorm : public Op {
 public:
  GroupNorm(const GroupNormSpec& spec, const LaunchContext& context)
      : spec_(checked(spec)),
        context_(context),
        extents_("group norm", spec.src[0], spec.positions(), spec.channels(), context),
        values_(spec.src[0] * spec.channels()),
        threads_(int(std::clamp<std::int64_t>((spec.channels() / spec.groups + 31) / 32 * 32, 32, 256))) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }

  // Workspace: the sums of the parts; scale and bias, or scale, slope and bias; the gradients of gamma and beta of each
  // row; and what column_sums() needs.
  MemoryRequirements memory_requirements() const override {
    const bool train = spec_.mode == Mode::train;
    MemoryRequirements needs;
    needs.workspace = std::size_t(sum_count() + (train ? 5 : 2) * values_) * sizeof(float) +
                      (train ? column_sums_bytes(extents_.rows, extents_.channels, context_) : 0);
    if (train) needs.saved = std::size_t(2 * extents_.rows * spec_.groups) * sizeof(float);
    return needs;
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    float *const sums = static_cast<float*>(args.workspace), *const scale = sums + sum_count(),
                 *const bias = scale + values_;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const dst = args.dst.as<T>();
      const T* const src = args.src[0].as<T>();
      rows::with_pack<T>(extents_.channels, {dst, src}, [&](auto pack) {
        constexpr int n = pack();
        rows::sum_rows(context_, extents_, sums, MomentTerms<T, n>{src, {}});
        launch(context_, extents_.rows * spec_.groups, threads_, 0,
               GroupMoments<T>{extents_, saved(args), spec_.epsilon, sums, args.weight[0].as<float>(),
                               args.weight[1].as<float>(), src, scale, bias});
        rows::in_row_slices(
            extents_, n, [&](const Packs& packs, std::int64_t row, std::int64_t begin, std::int64_t count) {
              const std::int64_t at = row * extents_.channels;
              for_each(context_, count,
                       Normalise<T, n>{packs, extents_.channels, dst + begin, src + begin, scale + at, bias + at});
            });
      });
    });
  }

  void backward(const OpArgs& args) override {
    float *const sums = static_cast<float*>(args.workspace), *const scale = sums + sum_count(),
                 *const slope = scale + values_, *const bias = slope + values_, *const of_gamma = bias + values_,
                 *const of_beta = of_gamma + values_;
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const diff = args.diff_src[0].as<T>();
      const T *const src = args.src[0].as<T>(), *const dy = args.diff_dst.as<T>();
      rows::with_pack<T>(extents_.channels, {diff, src, dy}, [&](auto pack) {
        constexpr int n = pack();
        rows::sum_rows(context_, extents_, sums, GradientTerms<T, n>{src, dy, saved(args), {}, {}});
        launch(context_, extents_.rows * spec_.groups, threads_, 0,
               GroupGradients{extents_, saved(args), sums, args.weight[0].as<float>(), scale, slope, bias, of_gamma,
                              of_beta});
        if (!diff) return;
        rows::in_row_slices(extents_, n,
                            [&](const Packs& packs, std::int64_t row, std::int64_t begin, std::int64_t count) {
                              const std::int64_t at = row * extents_.channels;
                              for_each(context_, count,
                                       Gradient<T, n>{packs, extents_.channels, diff + begin, src + begin, dy + begin,
                                                      scale + at, slope + at, bias + at});
                            });
      });
    });
    for (const int w : {0, 1})
      if (args.diff_weight[std::size_t(w)])
        column_sums(context_, args.diff_weight[std::size_t(w)].as<float>(),
                    {w == 0 ? of_gamma : of_beta, DType::f32, extents_.rows, extents_.channels},
                    args.mode[std::size_t(w)], of_beta + values_);
  }

 private:
  static const GroupNormSpec& checked(const GroupNormSpec& spec) {
    spec.check();
    return spec;
  }
  // Rounded up, so that packs of the values behind the sums are aligned.
  std::int64_t sum_count() const { return (extents_.sum_count(2) + 15) / 16 * 16; }
  Saved saved(const OpArgs& args) const {
    float* const mean = spec_.mode == Mode::train ? static_cast<float*>(args.saved) : nullptr;
    const int groups = int(spec_.groups);
    return {mean, mean ? mean + extents_.rows * spec_.groups : nullptr, groups, extents_.channels / groups};
  }

  GroupNormSpec spec_;
  LaunchContext context_;
  Extents extents_;
  std::int64_t values_;  // rows * channels
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_group_norm(const GroupNormSpec& spec, const LaunchContext& context) {
  return std::make_unique<GroupNorm>(spec, context);
}

}  // namespace millrace::cuda
