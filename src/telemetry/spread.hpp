// Least, median and most of a figure over ranks. Private to the telemetry room.
#pragma once
#include <algorithm>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

struct Spread {
  double least = 0, median = 0, most = 0;
  int least_rank = 0, most_rank = 0;  // the first of those
};

template <class Get>
Spread spread(const std::vector<RankAccount>& ranks, Get get) {
  std::vector<double> values;
  for (const auto& r : ranks) values.push_back(get(r));
  if (values.empty()) return {};
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const int least_rank = int(least - values.begin()),
            most_rank = int(std::find(values.begin(), values.end(), *most) - values.begin());
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back(), least_rank, most_rank};
}

}  // namespace millrace
