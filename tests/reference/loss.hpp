// Losses by their definition, in double.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/loss.hpp"

namespace millrace::reference {

struct Loss {
  double sum = 0;
  std::uint64_t top1 = 0, top5 = 0, counted = 0;
  std::vector<double> diff;  // gradient of `factor` times the sum
};

inline Loss cross_entropy(const CrossEntropySpec& s, const std::vector<double>& x, const std::vector<double>& labels,
                          double factor) {
  const std::size_t classes = std::size_t(s.classes());
  Loss loss;
  loss.diff.resize(x.size());
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    const double* row = x.data() + r * classes;
    const std::size_t label = std::size_t(labels[r]);
    double most = row[0], sum = 0;
    for (std::size_t c = 0; c < classes; ++c) most = row[c] > most ? row[c] : most;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - most);
    std::size_t before = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      const double logp = row[c] - most - std::log(sum);
      const double target =
          (c == label ? 1 - double(s.label_smoothing) : 0) + double(s.label_smoothing) / double(classes);
      if (target != 0) loss.sum -= target * logp;
      loss.diff[r * classes + c] = factor * (std::exp(logp) - target);
      before += row[c] > row[label] || (row[c] == row[label] && c < label);
    }
    loss.top1 += before < 1;
    loss.top5 += before < 5;
    ++loss.counted;
  }
  return loss;
}

inline Loss mse(const MseSpec& s, const std::vector<double>& x, const std::vector<double>& target, double factor) {
  const double features = double(s.src.row_count());
  Loss loss;
  for (std::size_t i = 0; i < x.size(); ++i) {
    loss.sum += (x[i] - target[i]) * (x[i] - target[i]) / features;
    loss.diff.push_back(factor * 2 * (x[i] - target[i]) / features);
  }
  loss.counted = std::uint64_t(s.src[0]);
  return loss;
}

}  // namespace millrace::reference
