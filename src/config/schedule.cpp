#include "millrace/config/schedule.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {

namespace {

// From `from` at fraction 0 to `to` at fraction 1.
double cosine_between(double from, double to, double fraction) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * fraction));
}

// The part of the decay that is left after this fraction of it: from 1 to 0.
double remaining(DecayShape shape, double fraction) {
  switch (shape) {
    case DecayShape::cosine:
      return cosine_between(1, 0, fraction);
    case DecayShape::sqrt:
      return 1 - std::sqrt(fraction);
    case DecayShape::linear:
      break;
  }
  return 1 - fraction;
}

// OneCycleLR of PyTorch with its default div_factor and final_div_factor.
double one_cycle(double highest, double pct_start, double step, double total_steps) {
  constexpr double div_factor = 25, final_div_factor = 1e4;
  const double first = highest / div_factor;
  const double peak = pct_start * total_steps - 1;
  const double last = total_steps - 1;
  if (step <= peak) return cosine_between(first, highest, peak > 0 ? step / peak : 1);
  return cosine_between(highest, first / final_div_factor, std::min(1.0, (step - peak) / (last - peak)));
}

}  // namespace

Schedule::Schedule(const OptimOptions& options, std::int64_t steps_per_epoch, std::int64_t total_steps,
                   std::int64_t global_batch)
    : options_(options),
      base_(options.lr_batch > 0 ? options.lr * double(global_batch) / options.lr_batch : options.lr),
      warmup_steps_(options.warmup * double(steps_per_epoch)),
      steps_per_epoch_(double(steps_per_epoch)),
      total_steps_(double(total_steps)) {
  constexpr double rounding = 1e-6;  // steps
  if (options_.schedule == LrSchedule::wsd && decay_start() + rounding < warmup_steps_)
    fail(Exit::config,
         "optim.decay: the last {} of {} steps overlap with the warm-up of {:g} steps. lower optim.decay or "
         "optim.warmup",
         options_.decay, total_steps, warmup_steps_);
}

double Schedule::decay_start() const { return total_steps_ * (1 - options_.decay); }

double Schedule::learning_rate(std::int64_t step, double plateau_rate) const {
  const double s = double(step);
  if (options_.schedule == LrSchedule::one_cycle) return one_cycle(base_, options_.pct_start, s, total_steps_);
  if (s < warmup_steps_) return base_ * (s + 1) / (warmup_steps_ + 1);
  const auto done_since = [&](double start) {
    return std::clamp((s - start) / std::max(1.0, total_steps_ - start), 0.0, 1.0);
  };
  const double done = done_since(warmup_steps_);
  switch (options_.schedule) {
    case LrSchedule::constant:
      return base_;
    case LrSchedule::plateau:
      return std::max(options_.min_lr, base_ * plateau_rate);
    case LrSchedule::linear:
      return base_ + (options_.min_lr - base_) * done;
    case LrSchedule::cosine:
      return cosine_between(base_, options_.min_lr, done);
    case LrSchedule::polynomial:
      return options_.min_lr + (base_ - options_.min_lr) * std::pow(1 - done, options_.power);
    case LrSchedule::wsd:
      return options_.min_lr + (base_ - options_.min_lr) * remaining(options_.decay_shape, done_since(decay_start()));
    case LrSchedule::step:
    case LrSchedule::one_cycle:
      break;
  }
  double rate = base_;
  for (const double epoch : options_.milestones)
    if (s >= epoch * steps_per_epoch_) rate *= options_.gamma;
  return rate;
}

CheckpointInterval CheckpointInterval::parse(const std::string& text) {
  CheckpointInterval out;
  out.automatic = text == "auto";
  if (text == "none" || out.automatic) return out;
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  if (problem == std::errc() && value > 0 && value < 1e15) {
    if (unit == "e") {
      out.epochs = value;
      return out;
    }
    if (unit.empty() && value == std::floor(value)) {
      out.steps = std::int64_t(value);
      return out;
    }
    if (!unit.empty()) {
      out.seconds = parse_seconds(text);
      return out;
    }
  }
  fail(Exit::config, "checkpoint.every: '{}' is not an interval{}. steps (500), epochs (2e), time (10m), auto or none",
       text, problem == std::errc() && value == 0 ? " (write none for never)" : "");
}

}  // namespace millrace
