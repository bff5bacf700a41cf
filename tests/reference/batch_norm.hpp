// Batch norm by its definition, in double, with two passes for each channel.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/batch_norm.hpp"

namespace millrace::reference {

struct BatchNormForward {
  std::vector<double> dst;
  // Of the micro-batch. In Mode::infer, mean and variance are the running values.
  std::vector<double> mean, variance, unbiased;
};
struct BatchNormGradients {
  std::vector<double> src, residual, gamma, beta;
};

// running: mean and variance for Mode::infer, otherwise empty. residual: empty if there is none.
inline BatchNormForward batch_norm_forward(const BatchNormSpec& s, const std::vector<double>& x,
                                           const std::vector<double>& residual, const std::vector<double>& gamma,
                                           const std::vector<double>& beta,
                                           const std::vector<std::vector<double>>& running = {}) {
  const std::size_t channels = std::size_t(s.src[-1]), rows = x.size() / channels;
  BatchNormForward f{x, std::vector<double>(channels), std::vector<double>(channels), std::vector<double>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    double mean = 0, squares = 0;
    for (std::size_t r = 0; r < rows; ++r) mean += x[r * channels + c] / double(rows);
    for (std::size_t r = 0; r < rows; ++r) squares += std::pow(x[r * channels + c] - mean, 2);
    f.mean[c] = mean;
    f.variance[c] = squares / double(rows);
    f.unbiased[c] = rows > 1 ? squares / double(rows - 1) : f.variance[c];
    if (s.mode == Mode::infer) {
      f.mean[c] = running[0][c];
      f.variance[c] = running[1][c];
    }
    for (std::size_t r = 0; r < rows; ++r) {
      double& y = f.dst[r * channels + c];
      y = (x[r * channels + c] - f.mean[c]) / std::sqrt(f.variance[c] + double(s.epsilon)) * gamma[c] + beta[c];
      if (s.residual) y += residual[r * channels + c];
      if (s.activation != Activation::none && y < 0) y = 0;
      if (s.activation == Activation::relu6 && y > 6) y = 6;
    }
  }
  return f;
}

inline BatchNormGradients batch_norm_backward(const BatchNormSpec& s, const std::vector<double>& x,
                                              const std::vector<double>& residual, const std::vector<double>& gamma,
                                              const std::vector<double>& beta, const std::vector<double>& dy) {
  const std::size_t channels = std::size_t(s.src[-1]), rows = x.size() / channels;
  const auto f = batch_norm_forward(s, x, residual, gamma, beta);
  BatchNormGradients g{std::vector<double>(x.size()), dy, std::vector<double>(channels), std::vector<double>(channels)};
  if (s.activation != Activation::none)
    for (std::size_t i = 0; i < dy.size(); ++i)
      if (f.dst[i] <= 0 || (s.activation == Activation::relu6 && f.dst[i] >= 6)) g.residual[i] = 0;
  for (std::size_t c = 0; c < channels; ++c) {
    const double inverse = 1 / std::sqrt(f.variance[c] + double(s.epsilon));
    const auto hat = [&](std::size_t i) { return (x[i] - f.mean[c]) * inverse; };
    for (std::size_t i = c; i < x.size(); i += channels) {
      g.beta[c] += g.residual[i];
      g.gamma[c] += g.residual[i] * hat(i);
    }
    for (std::size_t i = c; i < x.size(); i += channels)
      g.src[i] = gamma[c] * inverse * (g.residual[i] - (g.beta[c] + hat(i) * g.gamma[c]) / double(rows));
  }
  return g;
}

// act(norm(x) + norm2(r)), and its gradients.
struct DualNorm {
  BatchNormForward norm, norm2;  // norm.dst: the result
  BatchNormGradients gradients, gradients2;
};
struct NormInputs {
  std::vector<double> x, gamma, beta;
  std::vector<std::vector<double>> running = {};
};

inline DualNorm dual_norm(const BatchNormSpec& s, const NormInputs& a, const NormInputs& b,
                          const std::vector<double>& dy) {
  BatchNormSpec plain = s;
  plain.residual = false;
  plain.activation = Activation::none;
  DualNorm out;
  out.norm2 = batch_norm_forward(plain, b.x, {}, b.gamma, b.beta, b.running);
  out.norm = batch_norm_forward(s, a.x, out.norm2.dst, a.gamma, a.beta, a.running);
  if (s.mode == Mode::infer) return out;
  out.gradients = batch_norm_backward(s, a.x, out.norm2.dst, a.gamma, a.beta, dy);
  out.gradients2 = batch_norm_backward(plain, b.x, {}, b.gamma, b.beta, out.gradients.residual);
  return out;
}

}  // namespace millrace::reference
