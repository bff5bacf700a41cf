#include "train/sample_token.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"

namespace millrace {

std::int32_t sample_token(std::span<const float> logits, double temperature, std::int64_t top_k, double random) {
  MR_CHECK(!logits.empty());
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      fail(Exit::diverged, "the network gives {} for token {}. its training diverged: use an earlier checkpoint",
           logits[i], i);
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return std::int32_t(largest - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (top_k > 0 && top_k < std::int64_t(order.size())) {
    const auto larger = [&](std::int32_t a, std::int32_t b) {
      const float x = logits[std::size_t(a)], y = logits[std::size_t(b)];
      return x != y ? x > y : a < b;
    };
    std::nth_element(order.begin(), order.begin() + top_k - 1, order.end(), larger);
    order.resize(std::size_t(top_k));
    std::sort(order.begin(), order.end());
  }
  std::vector<double> sums;
  double sum = 0;
  for (const std::int32_t i : order) {
    sum += std::exp((double(logits[std::size_t(i)]) - double(*largest)) / temperature);
    sums.push_back(sum);
  }
  const auto drawn = std::upper_bound(sums.begin(), sums.end(), random * sum);
  return order[std::min(std::size_t(drawn - sums.begin()), order.size() - 1)];
}

double random_for_token(std::uint64_t seed, std::uint64_t position) {
  const Random4 r = philox(rng_key(seed, RngPurpose::generate), 0, position);
  return double(std::uint64_t(r.v[0]) << 21 | r.v[1] >> 11) * 0x1p-53;
}

}  // namespace millrace
