#include "millrace/comm/clock_offset.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "millrace/base/clock.hpp"

namespace millrace {

ClockOffset clock_offset(World& world, const std::function<double()>& given) {
  constexpr std::size_t rounds = 4, max_iterations = 32;
  constexpr double enough_seconds = 0.02;
  const auto clock = given ? given : steady_seconds;
  if (world.size() == 1) return {};
  double low = -std::numeric_limits<double>::infinity(), high = -low;
  const double began = clock();
  for (std::size_t iteration = 0; iteration < max_iterations; ++iteration) {
    std::array<double, 2 * rounds> mine;
    for (std::size_t k = 0; k < rounds; ++k) {
      mine[2 * k] = clock();
      world.barrier();
      mine[2 * k + 1] = clock();
    }
    auto first = mine;
    world.broadcast(first.data(), sizeof first, 0);
    for (std::size_t k = 0; k < rounds; ++k) {
      low = std::max(low, mine[2 * k] - first[2 * k + 1]);
      high = std::min(high, mine[2 * k + 1] - first[2 * k]);
    }
    double again = clock() - began < enough_seconds;
    world.broadcast(&again, sizeof again, 0);
    if (again == 0) break;
  }
  if (world.rank() == 0 || (world.node() == 0 && low <= 0 && high >= 0)) return {};
  return {(low + high) / 2, std::max(0.0, high - low) / 2};
}

}  // namespace millrace
