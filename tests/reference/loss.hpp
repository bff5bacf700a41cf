// Losses by their definition, in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/ops/loss.hpp"

namespace millrace::reference {

struct Loss {
  double sum = 0, weight = 0;
  std::uint64_t top1 = 0, top5 = 0, counted = 0;
  std::vector<double> diff;  // gradient of `factor` times the sum
  std::vector<double> metrics;
};

inline std::vector<double> softmax(const double* x, std::size_t classes) {
  std::vector<double> p;
  double sum = 0;
  for (std::size_t c = 0; c < classes; ++c) sum += p.emplace_back(std::exp(x[c] - *std::max_element(x, x + classes)));
  for (double& v : p) v /= sum;
  return p;
}

inline void add_dice(Loss& loss, const CrossEntropySpec& s, const std::vector<double>& x,
                     const std::vector<double>& labels, double factor) {
  const auto classes = std::size_t(s.classes()), positions = std::size_t(s.positions_of_row());
  for (std::size_t row = 0; row < std::size_t(s.src[0]); ++row) {
    std::vector<double> both(classes, 1e-5), all(classes, 1e-5);
    double weights = 0, dice = 0;
    const auto each = [&](auto&& use) {
      for (std::size_t i = row * positions; i < (row + 1) * positions; ++i)
        if (labels[i] >= 0) use(i, std::size_t(labels[i]), softmax(x.data() + i * classes, classes));
    };
    each([&](std::size_t, std::size_t label, const std::vector<double>& p) {
      for (std::size_t c = 0; c < classes; ++c) all[c] += p[c] + (c == label);
      both[label] += 2 * p[label];
      weights += s.class_weights.empty() ? 1 : double(s.class_weights[label]);
    });
    for (std::size_t c = 0; c < classes; ++c) dice += (1 - both[c] / all[c]) / double(classes);
    loss.sum += weights * double(s.dice) * dice;
    each([&](std::size_t i, std::size_t label, const std::vector<double>& p) {
      std::vector<double> slope;
      double mean = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        slope.push_back((both[c] / all[c] - (c == label ? 2 : 0)) / all[c] / double(classes));
        mean += p[c] * slope[c];
      }
      for (std::size_t c = 0; c < classes; ++c)
        loss.diff[i * classes + c] += factor * weights * double(s.dice) * p[c] * (slope[c] - mean);
    });
  }
}

// Counts a score in the histograms of ScoreBins, which begin at metrics[first].
inline void count_score(std::vector<double>& metrics, std::size_t first, std::size_t c, bool positive, double score) {
  const double bin = std::floor((score + 16) * 64);
  metrics[first + (2 * c + positive) * 2048 + std::size_t(std::clamp(bin, 0.0, 2047.0))] += 1;
}

inline Loss cross_entropy(const CrossEntropySpec& s, const std::vector<double>& x, const std::vector<double>& labels,
                          double factor) {
  const std::size_t classes = std::size_t(s.classes());
  Loss loss;
  loss.diff.resize(x.size());
  loss.metrics.resize(std::size_t(s.metric_count()));
  const auto weight = [&](std::size_t c) { return s.class_weights.empty() ? 1 : double(s.class_weights[c]); };
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    const double* row = x.data() + r * classes;
    const std::size_t label = std::size_t(labels[r]);
    double most = row[0], sum = 0;
    for (std::size_t c = 0; c < classes; ++c) most = row[c] > most ? row[c] : most;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - most);
    const auto target = [&](std::size_t c) {
      return weight(c) *
             ((c == label ? 1 - double(s.label_smoothing) : 0) + double(s.label_smoothing) / double(classes));
    };
    double targets = 0;
    for (std::size_t c = 0; c < classes; ++c) targets += target(c);
    std::size_t before = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      const double logp = row[c] - most - std::log(sum);
      if (target(c) != 0) loss.sum -= target(c) * logp;
      loss.diff[r * classes + c] = factor * (std::exp(logp) * targets - target(c));
      before += row[c] > row[label] || (row[c] == row[label] && c < label);
    }
    loss.top1 += before < 1;
    loss.top5 += before < 5;
    ++loss.counted;
    loss.weight += weight(label);
    const auto predicted = std::size_t(std::max_element(row, row + classes) - row);
    if (s.confusion_count() > 0) loss.metrics[label * classes + predicted] += 1;
    for (std::size_t c = 0; s.histogram_count() > 0 && c < classes; ++c) {
      double others = 0;
      for (std::size_t k = 0; k < classes; ++k) others += k == c ? 0 : std::exp(row[k] - most);
      count_score(loss.metrics, std::size_t(s.confusion_count()), c, c == label, row[c] - most - std::log(others));
    }
  }
  if (s.dice > 0) add_dice(loss, s, x, labels, factor);
  return loss;
}

struct ValueLoss {
  double loss = 0, slope = 0;
};
inline ValueLoss value_loss(const PointwiseLossSpec& s, double x, double target) {
  using Kind = PointwiseLossSpec::Kind;
  const double d = x - target, sign = d > 0 ? 1 : d < 0 ? -1 : 0, beta = double(s.beta);
  switch (s.kind) {
    case Kind::mse:
      return {d * d, 2 * d};
    case Kind::mae:
      return {std::abs(d), sign};
    case Kind::smooth_l1:
      if (std::abs(d) < beta) return {d * d / (2 * beta), d / beta};
      return {std::abs(d) - beta / 2, sign};
    case Kind::binary_cross_entropy:
      break;
  }
  const double p = 1 / (1 + std::exp(-x));
  return {-target * std::log(p) - (1 - target) * std::log(1 - p), p - target};
}

// origins: of the targets in the metrics; empty: they are 0.
inline Loss pointwise_loss(const PointwiseLossSpec& s, const std::vector<double>& x, const std::vector<double>& target,
                           double factor, const std::vector<double>& origins = {}) {
  const auto features = std::size_t(s.src.row_count());
  Loss loss;
  loss.metrics.resize(std::size_t(s.metric_count()));
  for (std::size_t o = 0; o < origins.size(); ++o) loss.metrics[std::size_t(s.origins_at()) + o] = origins[o];
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool ignored = s.targets == DType::i32 && target[i] < 0;
    const ValueLoss value = ignored ? ValueLoss{} : value_loss(s, x[i], target[i]);
    loss.sum += value.loss / (s.binary() ? 1 : double(features));
    loss.diff.push_back(factor * value.slope / double(features));
    const bool truth = target[i] >= 0.5, said = x[i] >= 0;
    if (s.binary() && !ignored) {
      ++loss.counted;
      loss.top1 += truth == said;
      if (s.confusion_count() > 0) loss.metrics[4 * (i % features) + 2 * truth + said] += 1;
      if (s.histogram_count() > 0)
        count_score(loss.metrics, std::size_t(s.confusion_count()), i % features, truth, x[i]);
    }
    if (s.binary()) continue;
    const std::size_t output = s.outputs() == 1 ? 0 : i % features;
    const double t = target[i] - loss.metrics[std::size_t(s.origins_at()) + output];
    const double sums[] = {std::abs(x[i] - target[i]), (x[i] - target[i]) * (x[i] - target[i]), t, t * t};
    for (std::size_t k = 0; k < 4; ++k) loss.metrics[4 * output + k] += sums[k];
  }
  if (!s.binary()) loss.counted = std::uint64_t(s.src[0]);
  loss.weight = double(loss.counted);
  return loss;
}

}  // namespace millrace::reference
