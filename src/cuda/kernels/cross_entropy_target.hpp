// The arguments of the kernels of the cross-entropy, and what they compare the logits of a row with.
#pragma once
#include <cmath>
#include <limits>

#include "cuda/block/half.hpp"
#include "cuda/kernels/row_loss.hpp"
#include "millrace/ops/loss.hpp"

namespace millrace::cuda {

template <class T>
struct CrossEntropyArgs {
  const T* logits;
  const std::int32_t* labels;
  T* diff;          // null: no gradient is needed; else as aligned as the logits
  RowLoss* losses;  // by block
  const StepState* state;
  int classes;
  float smoothing;
  double divisor;        // CrossEntropySpec::divisor()
  const float* weights;  // by class; null: all are 1
  double sum_of_weights;
  std::uint64_t* confusion;  // (classes, classes): counts of label and prediction; null: not requested
  std::uint64_t* scores;     // histograms of ScoreBins; null: not requested
  const std::int64_t* ids;   // with mixed rows
  Mixer mixer;

  MR_DEVICE_INLINE double weight_of(int c) const { return weights ? double(weights[c]) : 1; }
  MR_DEVICE_INLINE double gradient_scale() const {
    return double(state->loss_scale) * double(state->row_weight) / divisor;
  }
};

// The label of a row. If the row is mixed, that of its larger share; then `other` is the other label.
struct RowLabels {
  int label, other = -1;
  float share = 1;

  template <class T>
  MR_DEVICE_INLINE RowLabels(const CrossEntropyArgs<T>& args, std::int64_t row) : label(args.labels[row]) {
    if (!args.mixer.on()) return;
    const RowMix mix = args.mixer.of_row(args.state, args.ids, args.labels, row);
    if (mix.partner < 0) return;
    other = args.labels[mix.partner];
    share = mix.share;
    if (share >= 0.5f) return;
    const int own = label;
    label = other;
    other = own;
    share = 1 - share;
  }
  MR_DEVICE_INLINE bool valid(int classes) const { return label >= 0 && label < classes && other < classes; }
};

// What the logits are compared with: `own` more for the label, and `second` for the other label, than `uniform` times
// the weight of each class.
struct CrossEntropyTarget {
  double own, second, uniform, sum;
  double weight;  // of the labels

  template <class T>
  MR_DEVICE_INLINE CrossEntropyTarget(const CrossEntropyArgs<T>& args, const RowLabels& row) {
    const double kept = 1 - double(args.smoothing), share = double(row.share);
    const double first = share * args.weight_of(row.label),
                 other = row.other < 0 ? 0 : (1 - share) * args.weight_of(row.other);
    own = kept * first;
    second = kept * other;
    uniform = double(args.smoothing) / double(args.classes);
    weight = first + other;
    sum = kept * weight + uniform * args.sum_of_weights;
  }
  MR_DEVICE_INLINE double of(const RowLabels& row, int c) const {
    return (c == row.label ? own : 0) + (c == row.other ? second : 0);
  }
};

// Adds the score of class c, with the logit v, to the histograms. sum: of exp(logit - maximum) over all classes.
template <class T>
MR_DEVICE_INLINE void count_score(const CrossEntropyArgs<T>& args, int c, int label, float v, float maximum,
                                  double sum) {
  const double shifted = double(v) - double(maximum), others = sum - double(expf(v - maximum));
  const float score = others > 0    ? float(shifted - log(others))
                      : others <= 0 ? ScoreBins::limit
                                    : std::numeric_limits<float>::quiet_NaN();
  if (const std::int64_t place = ScoreBins::place(c, c == label, score); place >= 0) atomic_add(args.scores + place, 1);
}

}  // namespace millrace::cuda
