#include "data/scan/apportion.hpp"

#include <algorithm>
#include <numeric>

namespace millrace {

std::int64_t PartWeights::wanted() const {
  return std::count_if(weights.begin(), weights.begin() + std::ptrdiff_t(used), [](std::int64_t w) { return w > 0; });
}

std::vector<std::int64_t> apportion(std::int64_t n, const PartWeights& p, bool every_part,
                                    std::vector<std::int64_t>& owed) {
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < p.weights.size(); ++k) {
    counts.push_back(p.whole(n, k));
    owed[k] += p.rest(n, k);
    if (p.weights[k] > 0) order.push_back(k);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return owed[a] > owed[b]; });
  const auto give = [&](std::size_t k, std::int64_t rows) {
    counts[k] += rows;
    owed[k] -= rows * p.total;
  };
  const std::int64_t left = n - std::reduce(counts.begin(), counts.end());
  for (std::int64_t i = 0; i < left; ++i) give(order[std::size_t(i)], 1);
  for (std::size_t k = 0; every_part && k < p.used; ++k) {
    if (p.weights[k] == 0 || counts[k] > 0) continue;
    give(std::size_t(std::max_element(counts.begin(), counts.end()) - counts.begin()), -1);
    give(k, 1);
  }
  return counts;
}

std::vector<std::uint16_t> apportion_groups(const std::vector<std::int64_t>& sizes, const PartWeights& p) {
  const std::int64_t rows = std::reduce(sizes.begin(), sizes.end());
  std::vector<std::int64_t> lacks;
  std::vector<bool> empty;
  for (std::size_t k = 0; k < p.weights.size(); ++k) {
    lacks.push_back(p.whole(rows, k));
    empty.push_back(k < p.used && p.weights[k] > 0);
  }
  std::int64_t empty_parts = p.wanted();
  std::vector<std::uint16_t> out;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const bool only_empty = std::int64_t(sizes.size() - g) <= empty_parts;
    std::size_t best = p.weights.size();
    for (std::size_t k = 0; k < p.weights.size(); ++k)
      if (p.weights[k] > 0 && (!only_empty || empty[k]) && (best == p.weights.size() || lacks[k] > lacks[best]))
        best = k;
    lacks[best] -= sizes[g];
    empty_parts -= empty[best];
    empty[best] = false;
    out.push_back(std::uint16_t(best));
  }
  return out;
}

}  // namespace millrace
