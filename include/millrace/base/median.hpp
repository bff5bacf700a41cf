#pragma once
#include <algorithm>
#include <vector>

namespace millrace {

// The median of at least one value; for an even number of values, the mean of the middle two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace millrace
