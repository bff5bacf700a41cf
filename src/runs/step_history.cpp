#include "millrace/runs/step_history.hpp"

#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr double part_seconds = 0.5;
constexpr std::size_t max_parts = 20;
constexpr std::size_t max_means = 512;  // even, because neighbours are merged in pairs

void add_to(StepHistory::Sum& sum, const StepHistory::Sum& more) {
  sum.steps += more.steps;
  sum.seconds += more.seconds;
  sum.samples += more.samples;
  sum.least_seconds += more.least_seconds;
  for (std::size_t p = 0; p < sum.phase_seconds.size(); ++p) sum.phase_seconds[p] += more.phase_seconds[p];
}

}  // namespace

void StepHistory::add(const StepMetrics& m) {
  if (!empty() && m.step <= last_.step) clear();
  if (empty()) first_step_ = m.step;
  const Sum step{1, m.seconds, m.samples_per_second * m.seconds, m.speed_of_light * m.seconds, m.phase_seconds};
  add_to(all_, step);
  if (recent_.empty() || recent_.back().seconds >= part_seconds) recent_.emplace_back();
  add_to(recent_.back(), step);
  if (recent_.size() > max_parts) recent_.pop_front();

  if (losses_.empty() || losses_.back().steps == stride_) losses_.emplace_back();
  const bool finite = std::isfinite(m.loss);
  losses_.back().add({finite ? m.loss : 0, 1, finite});
  if (losses_.size() == max_means && losses_.back().steps == stride_) {
    for (std::size_t i = 0; i < max_means / 2; ++i) {
      Mean pair = losses_[2 * i];
      pair.add(losses_[2 * i + 1]);
      losses_[i] = pair;
    }
    losses_.resize(max_means / 2);
    stride_ *= 2;
  }
  skipped_ += m.skipped;
  last_ = m;
}

StepHistory::Sum StepHistory::recent() const {
  Sum out;
  for (const Sum& part : recent_) add_to(out, part);
  return out;
}

std::vector<double> StepHistory::losses(std::size_t max_count) const {
  std::vector<double> out;
  if (max_count == 0) return out;
  const std::size_t each = (losses_.size() + max_count - 1) / max_count;
  for (std::size_t i = 0; i < losses_.size(); i += each) {
    Mean part;
    for (std::size_t k = i; k < std::min(i + each, losses_.size()); ++k) part.add(losses_[k]);
    out.push_back(part.finite ? part.sum / double(part.finite) : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

}  // namespace millrace
