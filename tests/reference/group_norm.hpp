// Group norm by its definition, in double.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/group_norm.hpp"

namespace millrace::reference {

// Calls body(indices of the elements of one row and group, mean, 1 / sqrt(variance + epsilon)).
template <class Body>
void each_group(const GroupNormSpec& s, const std::vector<double>& x, const Body& body) {
  const std::int64_t channels = s.channels(), size = channels / s.groups;
  for (std::int64_t row = 0; row < s.src[0]; ++row)
    for (std::int64_t group = 0; group < s.groups; ++group) {
      std::vector<std::size_t> elements;
      for (std::int64_t p = 0; p < s.positions(); ++p)
        for (std::int64_t c = group * size; c < (group + 1) * size; ++c)
          elements.push_back(std::size_t((row * s.positions() + p) * channels + c));
      double mean = 0, square = 0;
      for (const std::size_t i : elements) mean += x[i] / double(elements.size());
      for (const std::size_t i : elements) square += (x[i] - mean) * (x[i] - mean) / double(elements.size());
      body(elements, mean, 1 / std::sqrt(square + double(s.epsilon)));
    }
}

inline std::vector<double> group_norm(const GroupNormSpec& s, const std::vector<double>& x,
                                      const std::vector<double>& gamma, const std::vector<double>& beta) {
  std::vector<double> dst(x.size());
  each_group(s, x, [&](const auto& elements, double mean, double inverse) {
    for (const std::size_t i : elements) {
      const std::size_t c = i % gamma.size();
      dst[i] = (x[i] - mean) * inverse * gamma[c] + beta[c];
    }
  });
  return dst;
}

struct GroupNormGradients {
  std::vector<double> src, gamma, beta;
};

// The gradients of gamma and beta are added to those given.
inline GroupNormGradients group_norm_gradients(const GroupNormSpec& s, const std::vector<double>& x,
                                               const std::vector<double>& gamma, const std::vector<double>& dy,
                                               std::vector<double> diff_gamma, std::vector<double> diff_beta) {
  GroupNormGradients out{std::vector<double>(x.size()), std::move(diff_gamma), std::move(diff_beta)};
  each_group(s, x, [&](const auto& elements, double mean, double inverse) {
    double g = 0, gx = 0;
    for (const std::size_t i : elements) {
      const std::size_t c = i % gamma.size();
      const double normalised = (x[i] - mean) * inverse;
      g += dy[i] * gamma[c] / double(elements.size());
      gx += dy[i] * gamma[c] * normalised / double(elements.size());
      out.gamma[c] += dy[i] * normalised;
      out.beta[c] += dy[i];
    }
    for (const std::size_t i : elements)
      out.src[i] = (dy[i] * gamma[i % gamma.size()] - g - (x[i] - mean) * inverse * gx) * inverse;
  });
  return out;
}

}  // namespace millrace::reference
