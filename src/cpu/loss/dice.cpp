#include "cpu/loss/dice.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/common/tile.hpp"
#include "cpu/common/vector_math.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t part_positions = 1024;

struct Sums {  // of one class
  double both = 0, probability = 0, labels = 0;
};

// Writes the probabilities of n positions.
MR_TARGET_CLONES void softmax(float* __restrict p, const float* __restrict x, std::int64_t n, std::int64_t classes) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) {
    const float* from = x + i * classes;
    float* to = p + i * classes;
    float most = from[0], sum = 0;
    for (std::int64_t c = 1; c < classes; ++c) most = from[c] > most ? from[c] : most;
    for (std::int64_t c = 0; c < classes; ++c) to[c] = fast_exp(from[c] - most, bounds);
    for (std::int64_t c = 0; c < classes; ++c) sum += to[c];
    for (std::int64_t c = 0; c < classes; ++c) to[c] /= sum;
  }
}

std::int64_t parts_of_row(const CrossEntropySpec& spec) {
  return (spec.positions_of_row() + part_positions - 1) / part_positions;
}

class Dice {
 public:
  Dice(const CrossEntropySpec& spec, const OpArgs& args, void* workspace)
      : args_(args),
        positions_(spec.positions_of_row()),
        classes_(spec.classes()),
        parts_(parts_of_row(spec)),
        rows_(spec.src[0]),
        dice_(double(spec.dice)),
        class_weights_(spec.class_weights),
        sums_(static_cast<Sums*>(workspace)) {}

  void sum() const {
    each_part([&](std::int64_t row, std::int64_t part) {
      Sums* sums = sums_ + (row * parts_ + part) * classes_;
      std::fill_n(sums, classes_, Sums{});
      each_position(row, part, [&](std::int64_t, std::int64_t label, const float* p) {
        for (std::int64_t c = 0; c < classes_; ++c) sums[c].probability += double(p[c]);
        sums[label].both += double(p[label]);
        sums[label].labels += 1;
      });
    });
  }

  // The sums of a row become those of its first part. Returns the weight of the positions that have a label.
  double combine(std::int64_t row) const {
    Sums* sums = sums_ + row * parts_ * classes_;
    double weight = 0;
    for (std::int64_t c = 0; c < classes_; ++c) {
      for (std::int64_t part = 1; part < parts_; ++part) {
        const Sums& other = sums[part * classes_ + c];
        sums[c].both += other.both;
        sums[c].probability += other.probability;
        sums[c].labels += other.labels;
      }
      weight += sums[c].labels * (class_weights_.empty() ? 1 : double(class_weights_[std::size_t(c)]));
    }
    return weight;
  }
  double loss(std::int64_t row) const {
    double sum = 0;
    for (std::int64_t c = 0; c < classes_; ++c) sum += 1 - top(row, c) / bottom(row, c);
    return dice_ * sum / double(classes_);
  }

  void add_gradient(const double* weights) const {
    const double step = double(args_.state->loss_scale) * double(args_.state->row_weight);
    const Tensor& diff = args_.diff_src[0];
    each_part([&](std::int64_t row, std::int64_t part) {
      const double factor = step * dice_ * weights[row] / double(positions_);
      float hit[CrossEntropySpec::max_dice_classes], rest[CrossEntropySpec::max_dice_classes];
      for (std::int64_t c = 0; c < classes_; ++c) {
        hit[c] = float(2 / (bottom(row, c) * double(classes_)));
        rest[c] = float(top(row, c) / (bottom(row, c) * bottom(row, c) * double(classes_)));
      }
      each_position(row, part, [&](std::int64_t at, std::int64_t label, const float* p) {
        Tile tile;
        float mean = -p[label] * hit[label];
        for (std::int64_t c = 0; c < classes_; ++c) mean += p[c] * rest[c];
        const float* before = read_floats(diff, at * classes_, classes_, tile);
        float* to = float_target(diff, at * classes_, tile);
        for (std::int64_t c = 0; c < classes_; ++c)
          to[c] = before[c] + float(factor) * p[c] * (rest[c] - (c == label ? hit[c] : 0) - mean);
        write_floats(diff, at * classes_, classes_, to);
      });
    });
  }

 private:
  static constexpr double smoothing = double(CrossEntropySpec::dice_smoothing);
  double top(std::int64_t row, std::int64_t c) const { return 2 * sums_[row * parts_ * classes_ + c].both + smoothing; }
  double bottom(std::int64_t row, std::int64_t c) const {
    const Sums& s = sums_[row * parts_ * classes_ + c];
    return s.probability + s.labels + smoothing;
  }

  template <class Body>
  void each_part(const Body& body) const {
    parallel_ranges(rows_ * parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i / parts_, i % parts_);
    });
  }
  // Calls body(position, label, probabilities) for the positions of a part that have a label.
  template <class Body>
  void each_position(std::int64_t row, std::int64_t part, const Body& body) const {
    const auto* labels = args_.src[1].as<std::int32_t>();
    const std::int64_t begin = row * positions_ + part * part_positions,
                       end = row * positions_ + std::min(positions_, (part + 1) * part_positions),
                       width = tile_count / classes_;
    Tile tile, p;
    for (std::int64_t at = begin; at < end; at += width) {
      const std::int64_t n = std::min(width, end - at);
      softmax(p, read_floats(args_.src[0], at * classes_, n * classes_, tile), n, classes_);
      for (std::int64_t i = 0; i < n; ++i)
        if (const std::int64_t label = labels[at + i]; label >= 0 && label < classes_)
          body(at + i, label, p.v + i * classes_);
    }
  }

  const OpArgs& args_;
  std::int64_t positions_, classes_, parts_, rows_;
  double dice_;
  const std::vector<float>& class_weights_;
  Sums* sums_;
};

}  // namespace

std::size_t dice_bytes(const CrossEntropySpec& spec) {
  if (spec.dice <= 0) return 0;
  return std::size_t(spec.src[0]) * (sizeof(double) + std::size_t(parts_of_row(spec) * spec.classes()) * sizeof(Sums));
}

void add_dice(const CrossEntropySpec& spec, const OpArgs& args, void* workspace) {
  auto* weights = static_cast<double*>(workspace);
  const Dice dice(spec, args, weights + spec.src[0]);
  dice.sum();
  for (std::int64_t row = 0; row < spec.src[0]; ++row) {
    weights[row] = dice.combine(row);
    args.state->losses[spec.term.number].sum += weights[row] * dice.loss(row);
  }
  if (spec.mode == Mode::train && args.diff_src[0]) dice.add_gradient(weights);
}

}  // namespace millrace::cpu
