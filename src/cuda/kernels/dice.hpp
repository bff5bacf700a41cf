// The Dice loss of CrossEntropySpec, in three kernels: the sums over parts of a row, their combination for each row,
// and the gradient, which is added to that of the cross-entropy. Sums are in a fixed order.
#pragma once
#include <cstdint>

#include "cuda/block/half.hpp"
#include "cuda/kernels/row_loss.hpp"
#include "millrace/ops/loss.hpp"

namespace millrace::cuda {

constexpr int dice_threads = 256;
constexpr std::int64_t dice_part = 4096;  // positions of a part
static_assert(CrossEntropySpec::max_dice_classes <= dice_threads);

struct DiceSums {  // of one class
  double both = 0, probability = 0, labels = 0;
};

struct DiceShape {
  std::int64_t positions;  // of a row
  int classes, parts;      // parts of a row
  float dice;              // CrossEntropySpec::dice
  static DiceShape of(const CrossEntropySpec& s) {
    const std::int64_t positions = s.positions_of_row();
    return {positions, int(s.classes()), int((positions + dice_part - 1) / dice_part), s.dice};
  }
  // For each row, for each class: the gradient with respect to the probability at a position is rest - hit where the
  // label is the class, otherwise rest. Then the weight of the Dice loss of the row, without that of the step.
  constexpr std::int64_t slopes() const { return 2 * classes + 1; }
};

struct PartOfRow {
  std::int64_t row, begin, end;  // positions, counted from the first row
  MR_DEVICE_INLINE PartOfRow(const DiceShape& shape, std::int64_t block) {
    const unsigned index = unsigned(block), parts = unsigned(shape.parts);
    row = index / parts;
    const std::int64_t first = index % parts * dice_part, last = first + dice_part;
    begin = row * shape.positions + first;
    end = row * shape.positions + (last < shape.positions ? last : shape.positions);
  }
};

struct Softmax {  // of one position: the probability of a logit x is exp(x - maximum) * scale
  float maximum = 0, scale = 0;
  int label = -1;  // negative: the position is ignored

  template <class T>
  MR_DEVICE_INLINE void read(const T* x, int of_position, int classes) {
    if (of_position < 0 || of_position >= classes) return;
    label = of_position;
    maximum = widen(x[0]);
    for (int c = 1; c < classes; ++c) maximum = widen(x[c]) > maximum ? widen(x[c]) : maximum;
    float sum = 0;
    for (int c = 0; c < classes; ++c) sum += expf(widen(x[c]) - maximum);
    scale = 1 / sum;
  }
  MR_DEVICE_INLINE float of(float x) const { return expf(x - maximum) * scale; }
};

// The threads take turns: first each handles a position, then each a class at several positions.
template <class T>
struct SumDice {
  const T* logits;
  const std::int32_t* labels;
  DiceSums* sums;  // by block and class
  DiceShape shape;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const PartOfRow part(shape, block.index());
    const int threads = block.threads(), thread = block.thread(), classes = shape.classes;
    const int groups = threads / classes, group = thread / classes, own = thread % classes;
    DiceSums* const of_thread = block.template shared<DiceSums>();
    Softmax* const tile = reinterpret_cast<Softmax*>(of_thread + threads);
    DiceSums sum;
    for (std::int64_t first = part.begin; first < part.end; first += threads) {
      const int count = int(part.end - first < threads ? part.end - first : threads);
      Softmax softmax;
      if (thread < count) softmax.read(logits + (first + thread) * classes, labels[first + thread], classes);
      tile[thread] = softmax;
      block.sync();
      for (int i = group; group < groups && i < count; i += groups) {
        if (tile[i].label < 0) continue;
        const double p = double(tile[i].of(widen(logits[(first + i) * classes + own])));
        sum.probability += p;
        if (tile[i].label != own) continue;
        sum.both += p;
        sum.labels += 1;
      }
      block.sync();
    }
    of_thread[thread] = sum;
    block.sync();
    if (thread >= classes) return;
    for (int g = 1; g < groups; ++g) {
      const DiceSums& other = of_thread[thread + g * classes];
      sum.both += other.both;
      sum.probability += other.probability;
      sum.labels += other.labels;
    }
    sums[block.index() * classes + thread] = sum;
  }
};

struct CombineDice {
  const DiceSums* parts;
  RowLoss* rows;
  float* slopes;
  const float* weights;  // by class; null: all are 1
  DiceShape shape;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int c = block.thread(), classes = shape.classes;
    DiceSums sum;
    for (int part = 0; c < classes && part < shape.parts; ++part) {
      const DiceSums& one = parts[(block.index() * shape.parts + part) * classes + c];
      sum.both += one.both;
      sum.probability += one.probability;
      sum.labels += one.labels;
    }
    constexpr double smoothing = double(CrossEntropySpec::dice_smoothing);
    const double top = 2 * sum.both + smoothing, bottom = sum.probability + sum.labels + smoothing;
    const double loss = block.sum(c < classes ? 1 - top / bottom : 0.0) / classes;
    const double weight = block.sum(c < classes && weights ? sum.labels * double(weights[c]) : sum.labels);
    float* const slope = slopes + block.index() * shape.slopes();
    if (c < classes) {
      slope[2 * c] = float(2 / (bottom * classes));
      slope[2 * c + 1] = float(top / (bottom * bottom * classes));
    }
    if (c > 0) return;
    slope[2 * classes] = float(double(shape.dice) * weight / double(shape.positions));
    RowLoss result;
    result.loss = double(shape.dice) * weight * loss;
    rows[block.index()] = result;
  }
};

template <class T>
struct AddDiceGradient {
  const T* logits;
  const std::int32_t* labels;
  T* diff;
  const float* slopes;
  const StepState* state;
  DiceShape shape;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const PartOfRow part(shape, block.index());
    const int classes = shape.classes;
    const float* const slope = slopes + part.row * shape.slopes();
    const float factor = state->loss_scale * state->row_weight * slope[2 * classes];
    for (std::int64_t p = part.begin + block.thread(); p < part.end; p += block.threads()) {
      const T* const x = logits + p * classes;
      Softmax softmax;
      softmax.read(x, labels[p], classes);
      if (softmax.label < 0) continue;
      float mean = 0;
      for (int c = 0; c < classes; ++c) mean += softmax.of(widen(x[c])) * slope_of(slope, c, softmax.label);
      for (int c = 0; c < classes; ++c) {
        float v[1];
        load(v, diff + p * classes + c);
        v[0] += factor * softmax.of(widen(x[c])) * (slope_of(slope, c, softmax.label) - mean);
        store(diff + p * classes + c, v);
      }
    }
  }

 private:
  static MR_DEVICE_INLINE float slope_of(const float* slope, int c, int label) {
    return c == label ? slope[2 * c + 1] - slope[2 * c] : slope[2 * c + 1];
  }
};

}  // namespace millrace::cuda
