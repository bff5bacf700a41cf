// Losses, the last operation of a network. In Mode::train, forward() computes the loss and writes diff_src[0] in the
// same pass; backward() does nothing. The gradient is that of loss_scale * row_weight * (sum over rows). So the plain
// sum of the gradients over micro-batches and ranks is the gradient of the mean over the global batch, times the loss
// scale. The results are added to LossSums of the StepState; its weight counts as `counted` does unless something else
// is said. The order of these sums depends only on the shape, so they are bitwise reproducible.
//
// In Mode::infer, if OpArgs::metrics is set, forward() also adds to the values there, from which an evaluation computes
// its metrics. metric_count() is their number, 8 bytes each; 0: there are none.
#pragma once
#include <optional>
#include <vector>

#include "millrace/ops/mix.hpp"
#include "millrace/ops/op.hpp"

namespace millrace {

// Histograms of the scores of a class, from which an evaluation computes the area under the ROC curve. A score is the
// logarithm of p / (1 - p), where p is the probability of the class. The bins have equal width; scores outside of
// [-limit, limit) are in the first or the last bin.
struct ScoreBins {
  static constexpr int count = 2048;
  static constexpr float limit = 16;
  static constexpr std::int64_t max_classes = 256;  // there are no histograms of more classes

  static std::int64_t histogram_count(std::int64_t classes) { return classes <= max_classes ? classes * 2 * count : 0; }
  // The place in (classes, 2, bins) uint64; -1: the score is NaN.
  MR_HOST_DEVICE static std::int64_t place(std::int64_t c, bool positive, float score) {
    if (!(score == score)) return -1;
    const float at = (score + limit) * (float(count) / (2 * limit));
    const int bin = at < 0 ? 0 : at < float(count) ? int(at) : count - 1;
    return (c * 2 + positive) * count + bin;
  }
};

// A network may have several losses; what it minimises is the sum of factor * loss. The factor multiplies the gradient,
// but not LossSums.
struct LossTerm {
  int number = 0;    // of its LossSums in the StepState
  float factor = 1;  // above 0
};

// Softmax cross-entropy at every position of a row. src[0]: logits, (N, ..., classes) in `dtype`. src[1]: labels,
// (N, ...) int32 in [0, classes). A position weighs row_weight / (positions of a row). Positions with a negative label
// are ignored; the sums count positions. Label smoothing s mixes the one-hot target with the uniform distribution, as
// in PyTorch: (1 - s) * onehot + s / classes. class_weights, as PyTorch's `weight`, multiply the term of each class in
// this sum; LossSums::weight is then the sum of the weights of the labels. The gradient is not divided by it: see
// OptimizerSpec::loss_positions.
//
// `dice` times the Dice loss of its row, and times the weight of its label, is added to the loss of each position that
// has a label. The Dice loss is 1 minus the mean, over all classes, of (2 * sum(p * t) + 1e-5) / (sum(p) + sum(t) +
// 1e-5). The sums are over the positions of the row that have a label; p: probability of the class; t: 1 if the label
// is the class, otherwise 0.
//
// mix: the target of a row is that of its own label times RowMix::share, plus that of the partner's label times the
// rest; LossSums::weight mixes their weights alike. top1 and top5 compare with the label of the larger share. src[2]:
// sample ids, (N) int64.
//
// metrics: (classes, classes) uint64. The value at [label][class with the largest logit] counts positions. If the
// logits are (N, classes), it is followed by the histograms of ScoreBins, which count rows.
struct CrossEntropySpec {
  Shape src;
  float label_smoothing = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  std::vector<float> class_weights = {};  // empty: all are 1
  float dice = 0;
  std::optional<MixSpec> mix = {};  // Mode::train, logits (N, classes), without dice
  LossTerm term = {};               // with dice, the factor is 1

  static constexpr float dice_smoothing = 1e-5f;
  static constexpr std::int64_t max_dice_classes = 256;
  std::int64_t classes() const { return src[-1]; }
  std::int64_t positions() const { return src.count() / src[-1]; }  // of all rows
  std::int64_t positions_of_row() const { return src.row_count() / src[-1]; }
  double divisor() const { return double(positions_of_row()) / double(term.factor); }  // of the gradient of a row
  std::int64_t confusion_count() const { return classes() <= 1024 ? classes() * classes() : 0; }
  std::int64_t histogram_count() const { return src.rank == 2 ? ScoreBins::histogram_count(classes()) : 0; }
  std::int64_t metric_count() const { return confusion_count() + histogram_count(); }
  void check() const;  // Error(config)
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// The mean of a loss over the features of a row, summed over rows. src[0]: predictions, (N, F) in `dtype`. src[1]:
// targets, (N, F) in `targets`: float32, for binary_cross_entropy also int32. With the difference d = prediction -
// target:
//   mse                   d^2
//   mae                   |d|
//   smooth_l1             d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2
//   binary_cross_entropy  of the probability sigmoid(prediction) and a target in [0, 1]. It is NaN for another target,
//                         but negative integers are ignored
// All but the last count rows. binary_cross_entropy counts predictions that have a target: the sums are over them, and
// top1 counts those that are on the same side of a probability of 0.5 as their target.
//
// metrics: (outputs, 4) float64, the sums over rows of |d|, d^2, t and t^2, where t is the target minus the origin of
// the output. Behind them are the origins, (outputs) float64, which the caller sets: with values near the targets, t^2
// loses no digits. With more than max_outputs features, outputs is 1, and the sums are over all features. For
// binary_cross_entropy (F, 2, 2) uint64: the value at [feature][target >= 0.5][probability >= 0.5] counts predictions.
// Behind them are the histograms of ScoreBins.
struct PointwiseLossSpec {
  enum class Kind { mse, mae, smooth_l1, binary_cross_entropy };
  Kind kind = Kind::mse;
  Shape src;
  float beta = 1;  // smooth_l1: above 0
  DType targets = DType::f32;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  LossTerm term = {};

  double divisor() const { return double(src.row_count()) / double(term.factor); }  // of the gradient of a row
  bool binary() const { return kind == Kind::binary_cross_entropy; }
  std::int64_t confusion_count() const { return binary() && src.row_count() <= 1 << 18 ? 4 * src.row_count() : 0; }
  std::int64_t histogram_count() const { return binary() ? ScoreBins::histogram_count(src.row_count()) : 0; }
  static constexpr std::int64_t max_outputs = 256;
  std::int64_t outputs() const { return src.row_count() <= max_outputs ? src.row_count() : 1; }
  std::int64_t origins_at() const { return 4 * outputs(); }
  std::int64_t metric_count() const { return binary() ? confusion_count() + histogram_count() : 5 * outputs(); }
  void check() const;  // Error(config)
  static constexpr bool keeps_src = true, keeps_dst = false;
};
constexpr const char* name_of(PointwiseLossSpec::Kind kind) {
  using Kind = PointwiseLossSpec::Kind;
  return kind == Kind::mse         ? "mse"
         : kind == Kind::mae       ? "mae"
         : kind == Kind::smooth_l1 ? "smooth_l1"
                                   : "binary_cross_entropy";
}

}  // namespace millrace
