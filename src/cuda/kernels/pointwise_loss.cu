// Losses of single values. Each block handles a part of a row; then one block adds up the parts.
#include <cmath>
#include <limits>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"

namespace millrace::cuda {
namespace {

using Kind = PointwiseLossSpec::Kind;
constexpr std::int64_t part_count = 4096;  // elements of a part

template <int n>
MR_DEVICE_INLINE void load_targets(float (&y)[n], const float* from) {
  load(y, from);
}
template <int n>
MR_DEVICE_INLINE void load_targets(float (&y)[n], const std::int32_t* from) {
  for (int k = 0; k < n; ++k) y[k] = float(from[k]);
}

// The loss of a value. x becomes its slope. mae is smooth_l1 with the smallest beta that is a normal number. NaN stays
// NaN.
MR_DEVICE_INLINE double value_loss(Kind kind, float beta, float& x, float y) {
  x -= y;
  const float size = fabsf(x);
  if (kind == Kind::mse) {
    x *= 2;
    return double(size) * double(size);
  }
  const float part = size >= beta ? beta : size, d = x / beta;
  x = d >= 1 ? 1 : d <= -1 ? -1 : d;
  return double(part / beta) * (double(size) - 0.5 * double(part));
}

MR_DEVICE_INLINE double binary_loss(float& x, float y) {
  const float e = expf(-fabsf(x));
  const double loss = double(x > 0 ? x : 0) - double(x) * double(y) + double(log1pf(e));
  x = (x >= 0 ? 1 : e) / (1 + e) - y;
  return y >= 0 && y <= 1 ? loss : std::numeric_limits<double>::quiet_NaN();
}

template <class T, class Y, int n>
struct LossPart {
  const T* src;
  const Y* target;
  T* diff;  // null: no gradient is needed
  RowLoss* losses;
  MetricSums* sums;                // null: not requested
  const double* origin;            // of the targets in `sums`
  std::uint64_t *counts, *scores;  // of binary_cross_entropy: histograms of ScoreBins; null: not requested
  const StepState* state;
  std::int64_t features, parts;  // in a row
  double divisor;                // PointwiseLossSpec::divisor()
  float beta;
  Kind kind;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index() / parts, part = block.index() % parts;
    const std::int64_t first = row * features, begin = first + part * part_count,
                       end = part + 1 < parts ? begin + part_count : first + features;
    const float factor = float(double(state->loss_scale) * double(state->row_weight) / divisor);
    const bool binary = kind == Kind::binary_cross_entropy;
    double sum = 0;
    int right = 0, counted = 0;
    MetricSums own;
    for (std::int64_t i = begin + block.thread() * n; i < end; i += block.threads() * n) {
      float x[n], y[n];
      load(x, src + i);
      load_targets(y, target + i);
      if (sums)
        for (int k = 0; k < n; ++k) own.add(x[k], y[k], *origin);
      for (int k = 0; k < n; ++k) {
        if (!binary) {
          sum += value_loss(kind, beta, x[k], y[k]);
        } else if (ignored(y[k])) {
          x[k] = 0;
        } else {
          ++counted;
          right += count(x[k], y[k], i - first + k);
          sum += binary_loss(x[k], y[k]);
        }
        x[k] *= factor;
      }
      if (diff) store(diff + i, x);
    }
    sum = block.sum(sum);
    if (binary) {
      right = block.sum(right);
      counted = block.sum(counted);
    }
    if (sums)
      for (double& v : own.v) v = block.sum(v);
    if (block.thread() != 0) return;
    RowLoss result;
    result.loss = binary ? sum : sum / double(features);
    result.counted = std::uint32_t(binary ? counted : part == 0);
    result.weight = result.counted;
    result.top1 = std::uint16_t(right);
    losses[block.index()] = result;
    if (sums) sums[block.index()] = own;
  }

 private:
  static MR_DEVICE_INLINE bool ignored(float y) { return Y(0.5) == 0 && y < 0; }  // only of integers
  MR_DEVICE_INLINE int count(float x, float y, std::int64_t feature) const {
    const int truth = y >= 0.5f, said = x >= 0;
    if (counts) atomic_add(counts + 4 * feature + 2 * truth + said, 1);
    if (scores)
      if (const std::int64_t place = ScoreBins::place(feature, truth, x); place >= 0) atomic_add(scores + place, 1);
    return truth == said && x == x;
  }
};

// A block adds up the rows of an output.
template <class T>
struct OutputSums {
  double* to;
  const double* origins;
  const T* src;
  const float* target;
  std::int64_t rows, features;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t output = block.index();
    MetricSums own;
    for (std::int64_t row = block.thread(); row < rows; row += block.threads()) {
      float x[1], y[1];
      load(x, src + row * features + output);
      load(y, target + row * features + output);
      own.add(x[0], y[0], origins[output]);
    }
    for (int k = 0; k < 4; ++k) {
      const double sum = block.sum(own.v[k]);
      if (block.thread() == 0) to[4 * output + k] += sum;
    }
  }
};

class PointwiseLoss : public Op {
 public:
  PointwiseLoss(const PointwiseLossSpec& spec, const LaunchContext& context)
      : spec_(spec),
        context_(context),
        features_(spec.src.row_count()),
        parts_((features_ + part_count - 1) / part_count),
        blocks_(spec.src[0] * parts_) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    spec_.check();
    if (spec_.kind == Kind::mae) spec_.beta = std::numeric_limits<float>::min();
  }
  MemoryRequirements memory_requirements() const override {
    const std::size_t sums = spec_.mode == Mode::infer && spec_.outputs() == 1 ? sizeof(MetricSums) : 0;
    return {std::size_t(blocks_) * (sizeof(RowLoss) + sums), 0, 0};
  }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (spec_.targets == DType::i32)
        parts<T, std::int32_t, 1>(args);
      else if (features_ % pack_size<T> == 0)
        parts<T, float, pack_size<T>>(args);
      else
        parts<T, float, 1>(args);
    });
    add_row_losses(context_, args.state->losses + spec_.term.number, static_cast<RowLoss*>(args.workspace), blocks_);
    if (row_sums(args))
      launch(context_, 1, 256, 0, AddMetricSums{static_cast<double*>(args.metrics), sums(args), blocks_});
    else if (metrics(args) && !spec_.binary())
      dispatch_dtype(spec_.dtype, [&](auto zero) { add_outputs<decltype(zero)>(args); });
  }
  void backward(const OpArgs&) override {}

 private:
  bool metrics(const OpArgs& args) const {
    return spec_.mode == Mode::infer && args.metrics && spec_.metric_count() > 0;
  }
  bool row_sums(const OpArgs& args) const { return metrics(args) && !spec_.binary() && spec_.outputs() == 1; }
  template <class T>
  void add_outputs(const OpArgs& args) const {
    auto* const totals = static_cast<double*>(args.metrics);
    launch(context_, features_, 256, 0,
           OutputSums<T>{totals, totals + spec_.origins_at(), args.src[0].as<T>(), args.src[1].as<float>(),
                         spec_.src[0], features_});
  }
  MetricSums* sums(const OpArgs& args) const {
    return reinterpret_cast<MetricSums*>(static_cast<RowLoss*>(args.workspace) + blocks_);
  }
  template <class T, class Y, int n>
  void parts(const OpArgs& args) const {
    T* diff = spec_.mode == Mode::train ? args.diff_src[0].as<T>() : nullptr;
    auto* const counts = metrics(args) && spec_.binary() ? static_cast<std::uint64_t*>(args.metrics) : nullptr;
    const std::int64_t longest = features_ < part_count ? features_ : part_count;
    launch(context_, blocks_, even_threads(longest / n, 256), 0,
           LossPart<T, Y, n>{args.src[0].as<T>(), args.src[1].as<Y>(), diff, static_cast<RowLoss*>(args.workspace),
                             row_sums(args) ? sums(args) : nullptr,
                             row_sums(args) ? static_cast<const double*>(args.metrics) + spec_.origins_at() : nullptr,
                             spec_.confusion_count() > 0 ? counts : nullptr,
                             counts && spec_.histogram_count() > 0 ? counts + spec_.confusion_count() : nullptr,
                             args.state, features_, parts_, spec_.divisor(), spec_.beta, spec_.kind});
  }

  PointwiseLossSpec spec_;
  LaunchContext context_;
  std::int64_t features_, parts_, blocks_;  // parts: of a row; blocks: of all rows
};

}  // namespace

std::unique_ptr<Op> make_pointwise_loss(const PointwiseLossSpec& spec, const LaunchContext& context) {
  return std::make_unique<PointwiseLoss>(spec, context);
}

}  // namespace millrace::cuda
