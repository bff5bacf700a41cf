#include "millrace/runs/step_history.hpp"

#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr double part_seconds = 0.5;
constexpr std::size_t most_parts = 20, most_means = 512;  // the latter even

void add_to(StepHistory::Sum& sum, const StepHistory::Sum& more) {
  sum.steps += more.steps, sum.seconds += more.seconds, sum.samples += more.samples;
  for (std::size_t p = 0; p < sum.phase_seconds.size(); ++p) sum.phase_seconds[p] += more.phase_seconds[p];
}

}  // namespace

void StepHistory::add(const StepMetrics& m) {
  if (!empty() && m.step <= last_.step) clear();
  if (empty()) first_step_ = m.step;
  const Sum step{1, m.seconds, m.samples_per_second * m.seconds, m.phase_seconds};
  add_to(all_, step);
  if (parts_.empty() || parts_.back().seconds >= part_seconds) parts_.emplace_back();
  add_to(parts_.back(), step);
  if (parts_.size() > most_parts) parts_.pop_front();

  if (losses_.empty() || losses_.back().steps == stride_) losses_.emplace_back();
  const bool finite = std::isfinite(m.loss);
  losses_.back().add({finite ? m.loss : 0, 1, finite});
  if (losses_.size() == most_means && losses_.back().steps == stride_) {
    for (std::size_t i = 0; i < most_means / 2; ++i) {
      Mean pair = losses_[2 * i];
      pair.add(losses_[2 * i + 1]);
      losses_[i] = pair;
    }
    losses_.resize(most_means / 2), stride_ *= 2;
  }
  skipped_ += m.skipped;
  last_ = m;
}

StepHistory::Sum StepHistory::recent() const {
  Sum out;
  for (const Sum& part : parts_) add_to(out, part);
  return out;
}

std::vector<double> StepHistory::losses(std::size_t most) const {
  std::vector<double> out;
  if (most == 0) return out;
  const std::size_t each = (losses_.size() + most - 1) / most;
  for (std::size_t i = 0; i < losses_.size(); i += each) {
    Mean part;
    for (std::size_t k = i; k < std::min(i + each, losses_.size()); ++k) part.add(losses_[k]);
    out.push_back(part.finite ? part.sum / double(part.finite) : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

}  // namespace millrace
