// Cross-entropy. Rows are computed in parallel, each by one thread. Then the calling thread adds their results in
// order.
#include <cmath>
#include <limits>

#include "cpu/common/ops.hpp"
#include "cpu/common/row_loss.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/common/vector_math.hpp"
#include "cpu/loss/dice.hpp"
#include "cpu/loss/narrow_cross_entropy.hpp"

namespace millrace::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

MR_TARGET_CLONES float largest(const float* x, std::int64_t n) {
  float lanes[8];
  std::fill_n(lanes, 8, -infinity);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  for (int l = 0; i + l < n; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  return *std::max_element(lanes, lanes + 8);
}
MR_TARGET_CLONES void exponentials(float* __restrict e, const float* __restrict x, float shift, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) e[i] = fast_exp(x[i] - shift, bounds);
}
MR_TARGET_CLONES double total(const float* x, std::int64_t n) {
  double lanes[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int l = 0; l < 4; ++l) lanes[l] += double(x[i + l]);
  for (int l = 0; i + l < n; ++l) lanes[l] += double(x[i + l]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}
MR_TARGET_CLONES std::int32_t count_greater(const float* x, float than, std::int64_t n) {
  std::int32_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += x[i] > than;
  return count;
}
MR_TARGET_CLONES std::int32_t count_equal(const float* x, float to, std::int64_t n) {
  std::int32_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += x[i] == to;
  return count;
}
// diff = e * factor - uniform
MR_TARGET_CLONES void scale_shift(float* __restrict diff, const float* __restrict e, float factor, float uniform,
                                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) diff[i] = e[i] * factor - uniform;
}

class CrossEntropy : public RowLossOp {
 public:
  explicit CrossEntropy(const CrossEntropySpec& spec)
      : RowLossOp(spec.src.count() / std::max<std::int64_t>(1, spec.classes())), spec_(spec), classes_(spec.classes()) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    spec_.check();
    for (const float w : spec_.class_weights) sum_of_weights_ += double(w);
    if (spec_.class_weights.empty()) sum_of_weights_ = double(classes_);
    if (!spec_.mix) return;
    mix_table_ = mix_table(*spec_.mix);
    mixer_ = Mixer(*spec_.mix, mix_table_.data());
  }
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs = RowLossOp::memory_requirements();
    needs.workspace += dice_bytes(spec_);
    return needs;
  }

  void forward(const OpArgs& args) override {
    auto* sums = static_cast<RowLoss*>(args.workspace);
    if (is_narrow(args))
      parallel_ranges(spec_.positions(), 16 * narrow_rows,
                      [&](std::int64_t begin, std::int64_t end) { forward_narrow(args, begin, end, sums); });
    else
      parallel_ranges(spec_.positions(), std::max<std::int64_t>(1, 4096 / classes_),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t row = begin; row < end; ++row) sums[row] = forward_row(args, row);
                      });
    add_row_losses(args.state->losses[spec_.term.number], sums, spec_.positions());
    if (spec_.dice > 0) add_dice(spec_, args, sums + spec_.positions());
  }

 private:
  template <class Body>
  void tiles(const Body& body) const {
    for (std::int64_t at = 0; at < classes_; at += tile_count) body(at, std::min(tile_count, classes_ - at));
  }

  bool is_narrow(const OpArgs& args) const {
    return classes_ <= narrow_classes && !spec_.mix && spec_.class_weights.empty() && spec_.label_smoothing == 0 &&
           !(spec_.mode == Mode::infer && args.metrics);
  }

  void forward_narrow(const OpArgs& args, std::int64_t begin, std::int64_t end, RowLoss* sums) const {
    Tile tile, written;
    const bool want_diff = spec_.mode == Mode::train && args.diff_src[0];
    for (std::int64_t row = begin; row < end; row += narrow_rows) {
      const std::int64_t rows = std::min(narrow_rows, end - row), at = row * classes_;
      float* diff = want_diff ? float_target(args.diff_src[0], at, written) : nullptr;
      narrow_cross_entropy(read_floats(args.src[0], at, rows * classes_, tile), args.src[1].as<std::int32_t>() + row,
                           rows, classes_, scale_of(args), sums + row, diff);
      if (want_diff) write_floats(args.diff_src[0], at, rows * classes_, diff);
    }
  }

  double scale_of(const OpArgs& args) const {
    return double(args.state->loss_scale) * double(args.state->row_weight) / spec_.divisor();
  }

  RowLoss forward_row(const OpArgs& args, std::int64_t row) const {
    Tile tile, other;
    const Tensor &logits = args.src[0], &diff = args.diff_src[0];
    const std::int64_t base = row * classes_;
    const RowLabels labels = labels_of(args, row);
    const std::int64_t label = labels.label;
    const bool want_diff = spec_.mode == Mode::train && diff;
    if (label < 0 || label >= classes_ || labels.other >= classes_) {
      if (want_diff) std::fill(element(diff, base), element(diff, base + classes_), std::byte{0});
      return label < 0 ? RowLoss{} : no_such_class();
    }
    RowLoss result;
    const float own = *read_floats(logits, base + label, 1, other);
    float most = -infinity;
    std::int64_t rank = 0;
    tiles([&](std::int64_t at, std::int64_t n) {
      const float* x = read_floats(logits, base + at, n, tile);
      most = std::max(most, largest(x, n));
      rank += count_greater(x, own, n) + count_equal(x, own, std::clamp<std::int64_t>(label - at, 0, n));
    });
    double sum = 0, shifted = 0;
    tiles([&](std::int64_t at, std::int64_t n) {
      const float* x = read_floats(logits, base + at, n, tile);
      exponentials(other, x, most, n);
      sum += total(other, n);
      if (spec_.label_smoothing > 0) shifted += shifted_total(x, most, at, n);
    });
    const Target target = target_of(labels);
    result.loss = target.sum * std::log(sum) - target.own * (double(own) - double(most)) - target.uniform * shifted;
    if (labels.other >= 0)
      result.loss -= target.second * (double(*read_floats(logits, base + labels.other, 1, tile)) - double(most));
    result.counted = 1;
    result.weight = target.weight;
    result.top1 = rank < 1 && !std::isnan(own);
    result.top5 = rank < 5 && !std::isnan(own);
    if (spec_.mode == Mode::infer && args.metrics) count_metrics(args, row, label, most, sum);
    if (want_diff) write_gradient(args, base, labels, target, {most, sum}, other);
    return result;
  }

  // The label of a row, or of its larger share if it is mixed; then `other` is the other label.
  struct RowLabels {
    std::int64_t label, other = -1;
    double share = 1;
  };
  RowLabels labels_of(const OpArgs& args, std::int64_t row) const {
    const auto* labels = args.src[1].as<std::int32_t>();
    if (!spec_.mix) return {labels[row]};
    const RowMix mix = mixer_.of_row(args.state, args.src[2].as<std::int64_t>(), labels, row);
    if (mix.partner < 0) return {labels[row]};
    if (mix.share < 0.5f) return {labels[mix.partner], labels[row], 1 - double(mix.share)};
    return {labels[row], labels[mix.partner], double(mix.share)};
  }

  // The target of the label is `own` more, and that of the other label `second` more, than `uniform` times the weight
  // of the class.
  struct Target {
    double own, second, uniform, sum;
    double weight;  // of the labels
  };
  Target target_of(const RowLabels& labels) const {
    const double smoothing = spec_.label_smoothing, uniform = smoothing / double(classes_),
                 own = labels.share * weight_of(labels.label),
                 second = labels.other < 0 ? 0 : (1 - labels.share) * weight_of(labels.other);
    return {(1 - smoothing) * own, (1 - smoothing) * second, uniform,
            (1 - smoothing) * (own + second) + uniform * sum_of_weights_, own + second};
  }

  struct Exponentials {  // of a row: the largest logit, and the sum of exp(logit - most)
    float most;
    double sum;
  };
  // e: scratch memory; if all classes fit into it, it holds their exponentials.
  void write_gradient(const OpArgs& args, std::int64_t base, const RowLabels& labels, const Target& target,
                      const Exponentials& of_row, Tile& e) const {
    const double scale = scale_of(args);
    const float factor = float(scale * target.sum / of_row.sum), uniform_shift = float(scale * target.uniform);
    Tile tile;
    tiles([&](std::int64_t at, std::int64_t n) {
      const float* x = read_floats(args.src[0], base + at, n, tile);
      if (classes_ > tile_count) exponentials(e, x, of_row.most, n);
      float* to = float_target(args.diff_src[0], base + at, tile);
      if (spec_.class_weights.empty() || spec_.label_smoothing == 0)
        scale_shift(to, e, factor, uniform_shift, n);
      else
        for (std::int64_t i = 0; i < n; ++i) to[i] = e.v[i] * factor - uniform_shift * float(weight_of(at + i));
      for (const std::int64_t c : {labels.label, labels.other})
        if (c >= at && c < at + n) {
          const double probability = double(e.v[c - at]) / of_row.sum,
                       more = (c == labels.label ? target.own : 0) + (c == labels.other ? target.second : 0);
          to[c - at] = float(scale * (probability * target.sum - target.uniform * weight_of(c) - more));
        }
      write_floats(args.diff_src[0], base + at, n, to);
    });
  }

  // A label that is not below the number of classes is an error in the data. It makes the loss NaN.
  static RowLoss no_such_class() {
    RowLoss result;
    result.loss = std::numeric_limits<double>::quiet_NaN();
    result.weight = 1;
    result.counted = 1;
    return result;
  }
  double weight_of(std::int64_t c) const {
    return spec_.class_weights.empty() ? 1 : double(spec_.class_weights[std::size_t(c)]);
  }
  // The sum of weight * (x - most) over the classes from `at` on.
  double shifted_total(const float* x, float most, std::int64_t at, std::int64_t n) const {
    if (spec_.class_weights.empty()) return total(x, n) - double(most) * double(n);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += weight_of(at + i) * (double(x[i]) - double(most));
    return sum;
  }
  void count_metrics(const OpArgs& args, std::int64_t row, std::int64_t label, float most, double sum) const {
    if (spec_.confusion_count() > 0) count_prediction(args, row, label, most);
    if (spec_.histogram_count() == 0) return;
    auto* counts = static_cast<std::uint64_t*>(args.metrics) + spec_.confusion_count();
    const ExpBounds bounds;
    Tile tile;
    tiles([&](std::int64_t at, std::int64_t n) {
      const float* x = read_floats(args.src[0], row * classes_ + at, n, tile);
      for (std::int64_t i = 0; i < n; ++i) {
        const double shifted = double(x[i]) - double(most), others = sum - double(fast_exp(x[i] - most, bounds));
        const float score = others > 0 ? float(shifted - std::log(others)) : std::isnan(sum) ? float(sum) : infinity;
        const std::int64_t place = ScoreBins::place(at + i, at + i == label, score);
        if (place >= 0) __atomic_fetch_add(counts + place, 1, __ATOMIC_RELAXED);
      }
    });
  }
  // The prediction is the first class with the largest logit.
  void count_prediction(const OpArgs& args, std::int64_t row, std::int64_t label, float most) const {
    Tile tile;
    std::int64_t best = classes_;
    tiles([&](std::int64_t at, std::int64_t n) {
      const float* x = read_floats(args.src[0], row * classes_ + at, n, tile);
      const float* found = std::find(x, x + n, most);
      if (best == classes_ && found < x + n) best = at + (found - x);
    });
    auto* counts = static_cast<std::uint64_t*>(args.metrics);
    if (best < classes_) __atomic_fetch_add(counts + label * classes_ + best, 1, __ATOMIC_RELAXED);
  }

  CrossEntropySpec spec_;
  std::int64_t classes_;
  double sum_of_weights_ = 0;
  std::vector<float> mix_table_;
  Mixer mixer_;
};

}  // namespace

std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec& spec) { return std::make_unique<CrossEntropy>(spec); }

}  // namespace millrace::cpu
