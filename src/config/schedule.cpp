#include "millrace/config/schedule.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {

Schedule::Schedule(const OptimOptions& options, std::int64_t steps_per_epoch, std::int64_t total_steps,
                   std::int64_t global_batch)
    : options_(options),
      base_(options.lr_batch > 0 ? options.lr * double(global_batch) / options.lr_batch : options.lr),
      warmup_steps_(options.warmup * double(steps_per_epoch)),
      steps_per_epoch_(double(steps_per_epoch)),
      total_steps_(double(total_steps)) {}

double Schedule::learning_rate(std::int64_t step) const {
  const double s = double(step);
  if (s < warmup_steps_) return base_ * (s + 1) / (warmup_steps_ + 1);
  const double done = std::clamp((s - warmup_steps_) / std::max(1.0, total_steps_ - warmup_steps_), 0.0, 1.0);
  switch (options_.schedule) {
    case LrSchedule::constant:
      return base_;
    case LrSchedule::linear:
      return base_ + (options_.min_lr - base_) * done;
    case LrSchedule::cosine:
      return options_.min_lr + (base_ - options_.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
    case LrSchedule::step:
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
