// What a learning-rate sweep shows: where the loss falls, where it is least and where it rises again.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/advisor/trials/rate_range.hpp"

namespace millrace {
namespace {

constexpr int min_steps = 20;

struct Fitted {
  std::vector<double> value;
  std::vector<double> slope;  // per step; the logarithm of the rate grows evenly from step to step
  double width = 0;           // standard deviation of the Gaussian weights, in steps
};

// Fits a line to the neighbourhood of each step. Unlike a running average, it does not lag behind.
Fitted fit_lines(const std::vector<double>& loss) {
  const int n = int(loss.size());
  Fitted out;
  out.width = std::max(2.0, n / 30.0);
  const int reach = int(3 * out.width);
  for (int i = 0; i < n; ++i) {
    double w0 = 0, w1 = 0, w2 = 0, y0 = 0, y1 = 0;
    for (int j = std::max(0, i - reach); j <= std::min(n - 1, i + reach); ++j) {
      const double x = j - i, w = std::exp(-0.5 * x * x / (out.width * out.width));
      w0 += w;
      w1 += w * x;
      w2 += w * x * x;
      y0 += w * loss[std::size_t(j)];
      y1 += w * x * loss[std::size_t(j)];
    }
    const double det = w0 * w2 - w1 * w1;
    out.value.push_back((y0 * w2 - y1 * w1) / det);
    out.slope.push_back((w0 * y1 - w1 * y0) / det);
  }
  return out;
}

// Standard deviation of the smooth loss, from the scatter of single steps around it before it rises.
double noise_of_fit(const std::vector<double>& loss, const Fitted& fitted, std::size_t end) {
  double sum = 0;
  for (std::size_t i = 0; i < end; ++i) sum += std::pow(loss[i] - fitted.value[i], 2);
  return std::sqrt(sum / double(end)) / std::sqrt(3.5 * fitted.width);  // 2 sqrt(pi) widths of steps contribute
}

double two_digits(double value) { return std::stod(fmt::format("{:.1e}", value)); }

}  // namespace

RateAdvice advise(const RateSweep& sweep) {
  RateAdvice out;
  const int n = int(sweep.loss.size());
  if (n < min_steps) return out;
  Fitted fitted = fit_lines(sweep.loss);
  out.smooth = fitted.value;
  const int edge = int(fitted.width);  // near the ends, the fit has neighbours on one side only
  const auto begin = fitted.value.begin();
  const int least = int(std::min_element(begin + edge, fitted.value.end() - edge) - begin);
  // The fall is measured from the highest loss before the minimum.
  const double start = *std::max_element(begin + edge, begin + least + 1);
  const double fall = start - fitted.value[std::size_t(least)];
  const double noise = noise_of_fit(sweep.loss, fitted, std::size_t(least) + 1);
  out.falls = fall > std::max(6 * noise, 0.02 * std::abs(start));
  if (!out.falls) return out;
  const int steepest =
      int(std::min_element(fitted.slope.begin() + edge, fitted.slope.begin() + least + 1) - fitted.slope.begin());
  out.steepest = sweep.rate[std::size_t(steepest)];
  out.least = sweep.rate[std::size_t(least)];
  for (int i = least; i < n && out.rises == 0; ++i)
    if (fitted.value[std::size_t(i)] > fitted.value[std::size_t(least)] + fall / 2)
      out.rises = sweep.rate[std::size_t(i)];
  if (out.rises == 0 && sweep.diverged) out.rises = sweep.rate.back();
  out.suggested = two_digits(out.rises > 0 ? out.rises / 10 : out.steepest);
  return out;
}

}  // namespace millrace
