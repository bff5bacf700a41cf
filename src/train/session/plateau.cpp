#include "train/session/plateau.hpp"

#include <cmath>

#include "train/session/metrics.hpp"

namespace millrace {

bool PlateauState::evaluated(const OptimOptions& options, const std::string& of, double value) {
  constexpr double threshold = 1e-4;  // relative, as in PyTorch
  const double step = threshold * std::fabs(best);
  const bool better = lower_is_better(of) ? value < best - step : value > best + step;
  if (std::isfinite(value) && (metric != of || better)) {
    metric = of;
    best = value;
    waited = 0;
    return false;
  }
  if (++waited <= options.patience) return false;
  waited = 0;
  rate *= options.gamma;
  return true;
}

}  // namespace millrace
