// Layer norm and RMS norm by their definitions, in double.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/layer_norm.hpp"

namespace millrace::reference {

struct LayerNormGradients {
  std::vector<double> src, gamma, beta;
};

inline std::vector<double> layer_norm(const LayerNormSpec& s, const std::vector<double>& x,
                                      const std::vector<double>& gamma, const std::vector<double>& beta) {
  const auto channels = std::size_t(s.channels());
  std::vector<double> dst(x.size());
  for (std::size_t p = 0; p < x.size(); p += channels) {
    double mean = 0, square = 0;
    if (s.kind == LayerNormSpec::Kind::layer)
      for (std::size_t c = 0; c < channels; ++c) mean += x[p + c] / double(channels);
    for (std::size_t c = 0; c < channels; ++c) square += (x[p + c] - mean) * (x[p + c] - mean) / double(channels);
    for (std::size_t c = 0; c < channels; ++c)
      dst[p + c] = (x[p + c] - mean) / std::sqrt(square + double(s.epsilon)) * gamma[c] + (s.bias ? beta[c] : 0);
  }
  return dst;
}

// The gradients of gamma and beta are added to those given.
inline LayerNormGradients layer_norm_gradients(const LayerNormSpec& s, const std::vector<double>& x,
                                               const std::vector<double>& gamma, const std::vector<double>& dy,
                                               std::vector<double> diff_gamma, std::vector<double> diff_beta) {
  const auto channels = std::size_t(s.channels());
  const bool layer = s.kind == LayerNormSpec::Kind::layer;
  LayerNormGradients out{std::vector<double>(x.size()), std::move(diff_gamma), std::move(diff_beta)};
  for (std::size_t p = 0; p < x.size(); p += channels) {
    double mean = 0, square = 0, g = 0, gx = 0;
    if (layer)
      for (std::size_t c = 0; c < channels; ++c) mean += x[p + c] / double(channels);
    for (std::size_t c = 0; c < channels; ++c) square += (x[p + c] - mean) * (x[p + c] - mean) / double(channels);
    const double inverse = 1 / std::sqrt(square + double(s.epsilon));
    for (std::size_t c = 0; c < channels; ++c) {
      const double normalised = (x[p + c] - mean) * inverse;
      g += dy[p + c] * gamma[c] / double(channels);
      gx += dy[p + c] * gamma[c] * normalised / double(channels);
      out.gamma[c] += dy[p + c] * normalised;
      if (s.bias) out.beta[c] += dy[p + c];
    }
    for (std::size_t c = 0; c < channels; ++c)
      out.src[p + c] = (dy[p + c] * gamma[c] - (layer ? g : 0) - (x[p + c] - mean) * inverse * gx) * inverse;
  }
  return out;
}

}  // namespace millrace::reference
