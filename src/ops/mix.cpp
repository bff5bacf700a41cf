#include "millrace/ops/mix.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace {

void MixSpec::check() const {
  if (src.rank < 2 || (options.cutmix > 0 && src.spatial_rank() < 1))
    fail(Exit::config,
         "cutmix: samples of {} have no spatial axes, so there is no box to exchange. set train.cutmix = 0", src.str());
  if (src.row_count() > std::int64_t(1) << 30)
    fail(Exit::config, "mixup: samples of {} have too many values for the kernels. set train.mixup = 0", src.str());
}

// With z = log(x / (1 - x)), the density in z is proportional to (x (1 - x))^alpha, which is smooth for every alpha. It
// is integrated, relative to its largest value, up to the middle of the distribution, z = 0. It begins where it is
// below e^-40.
std::vector<double> beta_quantiles(double alpha, int count) {
  constexpr int steps = 1 << 16;
  const double log_4 = std::log(4.0);
  const double length = alpha < 1 ? (40 / alpha) + 2 : 2 * std::acosh(std::exp(20 / alpha)), step = length / steps;
  const auto density = [&](double z) { return std::exp(alpha * (z - 2 * std::log1p(std::exp(z)) + log_4)); };
  std::vector<double> below{0};  // the integral up to step k - length
  double left = density(-length);
  for (int k = 1; k <= steps; ++k) {
    const double right = density(double(k) * step - length);
    below.push_back(below.back() + (left + right) / 2);
    left = right;
  }
  std::vector<double> out(std::size_t(count), 0.5);
  for (int i = 0; i < count / 2; ++i) {
    const double wanted = (2.0 * i + 1) / count * below.back();
    const auto after = std::size_t(std::upper_bound(below.begin(), below.end(), wanted) - below.begin());
    const double part = (wanted - below[after - 1]) / (below[after] - below[after - 1]);
    const double z = (double(after - 1) + part) * step - length;
    out[std::size_t(i)] = std::exp(z) / (1 + std::exp(z));
    out[std::size_t(count - 1 - i)] = 1 - out[std::size_t(i)];
  }
  return out;
}

std::vector<float> mix_table(const MixSpec& s) {
  std::vector<float> out(2 * mix_quantiles, 1.0f);
  if (s.options.mixup > 0) std::ranges::copy(beta_quantiles(double(s.options.mixup), mix_quantiles), out.begin());
  if (s.options.cutmix > 0) {
    float* to = out.data() + mix_quantiles;
    for (const double share : beta_quantiles(double(s.options.cutmix), mix_quantiles))
      *to++ = float(std::pow(1 - share, 1 / double(s.src.spatial_rank())));
  }
  return out;
}

}  // namespace millrace
