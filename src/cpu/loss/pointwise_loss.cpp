#include <cmath>
#include <limits>

#include "cpu/common/ops.hpp"
#include "cpu/common/row_loss.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

using Kind = PointwiseLossSpec::Kind;

// Sums of float terms. The order depends only on n.
template <class Term>
__attribute__((always_inline)) inline double sum_of(std::int64_t n, const Term& term) {
  double lanes[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int l = 0; l < 4; ++l) lanes[l] += term(i + l);
  for (int l = 0; i + l < n; ++l) lanes[l] += term(i + l);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Each function writes the slopes of the loss and returns the sum of the losses.
MR_TARGET_CLONES double squares(float* __restrict slope, const float* __restrict x, const float* __restrict target,
                                std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) slope[i] = x[i] - target[i];
  const double sum = sum_of(n, [&](std::int64_t i) { return double(slope[i]) * double(slope[i]); });
  for (std::int64_t i = 0; i < n; ++i) slope[i] *= 2;
  return sum;
}
// The smooth L1 loss. With the smallest beta that is a normal number, it is the absolute value. NaN stays NaN.
MR_TARGET_CLONES double absolutes(float* __restrict slope, const float* __restrict x, const float* __restrict target,
                                  float beta, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) slope[i] = x[i] - target[i];
  const double sum = sum_of(n, [&](std::int64_t i) {
    const float size = std::fabs(slope[i]), part = size >= beta ? beta : size;
    return double(part / beta) * (double(size) - 0.5 * double(part));
  });
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = slope[i] / beta;
    slope[i] = d >= 1 ? 1 : d <= -1 ? -1 : d;
  }
  return sum;
}
double binary(float& slope, float x, float target) {
  const double z = double(x), y = double(target), e = std::exp(-std::fabs(z));
  slope = float((z >= 0 ? 1 : e) / (1 + e) - y);
  return y >= 0 && y <= 1 ? (z > 0 ? z : 0) - z * y + std::log1p(e) : std::numeric_limits<double>::quiet_NaN();
}
MR_TARGET_CLONES void scale(float* __restrict to, const float* __restrict from, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}

// What a row contributes to the metrics of a regression.
struct LossSums {
  double v[4] = {};
};

class PointwiseLoss : public RowLossOp {
 public:
  explicit PointwiseLoss(const PointwiseLossSpec& spec)
      : RowLossOp(spec.src[0]), spec_(spec), features_(spec.src.row_count()) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    spec_.check();
    if (spec_.kind == Kind::mae) spec_.beta = std::numeric_limits<float>::min();
  }
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs = RowLossOp::memory_requirements();
    if (spec_.mode == Mode::infer && spec_.outputs() == 1)
      needs.workspace += std::size_t(spec_.src[0]) * sizeof(LossSums);
    return needs;
  }

  void forward(const OpArgs& args) override {
    const std::int64_t rows = spec_.src[0];
    auto* losses = static_cast<RowLoss*>(args.workspace);
    auto* sums = reinterpret_cast<LossSums*>(losses + rows);
    const bool metrics = spec_.mode == Mode::infer && args.metrics && spec_.metric_count() > 0;
    const bool row_sums = metrics && !spec_.binary() && spec_.outputs() == 1;
    parallel_ranges(rows, std::max<std::int64_t>(1, 4 * tile_count / std::max<std::int64_t>(1, features_)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t row = begin; row < end; ++row) {
                        if (row_sums) sums[row] = {};
                        losses[row] = forward_row(args, row, metrics, row_sums ? sums + row : nullptr);
                      }
                    });
    add_row_losses(args.state->losses[spec_.term.number], losses, rows);
    if (!metrics || spec_.binary()) return;
    if (!row_sums) return add_outputs(args);
    auto* totals = static_cast<double*>(args.metrics);
    for (std::int64_t row = 0; row < rows; ++row)
      for (int k = 0; k < 4; ++k) totals[k] += sums[row].v[k];
  }

 private:
  const float* read_targets(const Tensor& y, std::int64_t at, std::int64_t n, float* tile) const {
    if (spec_.targets == DType::f32) return y.as<float>() + at;
    const auto* from = y.as<std::int32_t>() + at;
    for (std::int64_t i = 0; i < n; ++i) tile[i] = float(from[i]);
    return tile;
  }

  // The sums of each output, over the rows in their order.
  void add_outputs(const OpArgs& args) const {
    auto* const totals = static_cast<double*>(args.metrics);
    const double* const origins = totals + spec_.origins_at();
    parallel_ranges(features_, 16, [&](std::int64_t begin, std::int64_t end) {
      Tile tile, targets;
      for (std::int64_t row = 0; row < spec_.src[0]; ++row)
        for (std::int64_t first = begin; first < end; first += tile_count) {
          const std::int64_t at = row * features_ + first, n = std::min(tile_count, end - first);
          const float* x = read_floats(args.src[0], at, n, tile);
          const float* target = read_targets(args.src[1], at, n, targets);
          for (std::int64_t i = 0; i < n; ++i) {
            double* const to = totals + 4 * (first + i);
            const double d = double(x[i]) - double(target[i]), t = double(target[i]) - origins[first + i];
            to[0] += std::fabs(d);
            to[1] += d * d;
            to[2] += t;
            to[3] += t * t;
          }
        }
    });
  }

  // metrics: counts of binary_cross_entropy are wanted; sums: those of this row, or null.
  RowLoss forward_row(const OpArgs& args, std::int64_t row, bool metrics, LossSums* sums) const {
    Tile slope, tile, targets;
    const Tensor& diff = args.diff_src[0];
    const bool want_diff = spec_.mode == Mode::train && diff;
    const float factor = float(double(args.state->loss_scale) * double(args.state->row_weight) / spec_.divisor());
    RowLoss result;
    for (std::int64_t i = 0; i < features_; i += tile_count) {
      const std::int64_t at = row * features_ + i, n = std::min(tile_count, features_ - i);
      const float* x = read_floats(args.src[0], at, n, tile);
      const float* target = read_targets(args.src[1], at, n, targets);
      if (spec_.binary())
        binaries(result, slope, x, target, n, i, metrics ? static_cast<std::uint64_t*>(args.metrics) : nullptr);
      else
        result.loss +=
            spec_.kind == Kind::mse ? squares(slope, x, target, n) : absolutes(slope, x, target, spec_.beta, n);
      if (sums) add(*sums, x, target, static_cast<const double*>(args.metrics)[spec_.origins_at()], n);
      if (!want_diff) continue;
      float* to = float_target(diff, at, tile);
      scale(to, slope, factor, n);
      write_floats(diff, at, n, to);
    }
    if (!spec_.binary()) {
      result.loss /= double(features_);
      result.counted = 1;
    }
    result.weight = double(result.counted);
    return result;
  }

  // The n features from `first` on. Threads may count the same feature.
  void binaries(RowLoss& result, float* slope, const float* x, const float* target, std::int64_t n, std::int64_t first,
                std::uint64_t* counts) const {
    const bool confusion = counts && spec_.confusion_count() > 0, histogram = counts && spec_.histogram_count() > 0;
    for (std::int64_t i = 0; i < n; ++i) {
      slope[i] = 0;
      if (spec_.targets == DType::i32 && target[i] < 0) continue;  // ignored
      const int truth = target[i] >= 0.5f, said = x[i] >= 0;
      result.loss += binary(slope[i], x[i], target[i]);
      result.top1 += truth == said && !std::isnan(x[i]);
      ++result.counted;
      if (confusion) __atomic_fetch_add(counts + 4 * (first + i) + 2 * truth + said, 1, __ATOMIC_RELAXED);
      const std::int64_t place = ScoreBins::place(first + i, truth, x[i]);
      if (histogram && place >= 0) __atomic_fetch_add(counts + spec_.confusion_count() + place, 1, __ATOMIC_RELAXED);
    }
  }
  static void add(LossSums& sums, const float* x, const float* target, double origin, std::int64_t n) {
    sums.v[0] += sum_of(n, [&](std::int64_t i) { return std::fabs(double(x[i]) - double(target[i])); });
    sums.v[1] += sum_of(n, [&](std::int64_t i) {
      const double d = double(x[i]) - double(target[i]);
      return d * d;
    });
    sums.v[2] += sum_of(n, [&](std::int64_t i) { return double(target[i]) - origin; });
    sums.v[3] += sum_of(n, [&](std::int64_t i) {
      const double t = double(target[i]) - origin;
      return t * t;
    });
  }

  PointwiseLossSpec spec_;
  std::int64_t features_;
};

}  // namespace

std::unique_ptr<Op> make_pointwise_loss(const PointwiseLossSpec& spec) { return std::make_unique<PointwiseLoss>(spec); }

}  // namespace millrace::cpu
