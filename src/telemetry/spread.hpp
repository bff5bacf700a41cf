// Minimum, median and maximum of a value over the ranks. Internal to telemetry/.
#pragma once
#include <algorithm>
#include <vector>

#include "millrace/base/median.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

struct Spread {
  double min = 0, median = 0, max = 0;
  int min_rank = 0, max_rank = 0;  // the first rank with that value
};

template <class Get>
Spread spread(const std::vector<RankAccount>& ranks, Get get) {
  std::vector<double> values;
  for (const auto& r : ranks) values.push_back(get(r));
  if (values.empty()) return {};
  const auto min = std::min_element(values.begin(), values.end()), max = std::max_element(values.begin(), values.end());
  return {*min, median(values), *max, int(min - values.begin()), int(max - values.begin())};
}

}  // namespace millrace
