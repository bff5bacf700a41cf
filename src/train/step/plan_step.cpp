// Prepares a step: its samples, this rank's micro-batches, and the values that the device needs.
#include <fmt/format.h>

#include <algorithm>

#include "millrace/train/step/step.hpp"

namespace millrace {

EnqueuedStep& StepRunner::plan_step(std::int64_t step, double learning_rate) {
  const std::int64_t epoch = s_.batching.epochs.epoch(step);
  const std::int64_t in_epoch = s_.batching.epochs.step_in_epoch(step);
  s_.batching.train_order->share(epoch, in_epoch, s_.batching.load_balancer->part(step), share_);
  EnqueuedStep& out = enqueued_[std::size_t(step % 2)];
  out = {};
  out.number = step + 1;
  out.epoch = epoch;
  out.rows = s_.batching.train_order->rows_of_step(in_epoch);
  out.samples = s_.batching.epochs.samples(step);
  out.learning_rate = learning_rate;
  out.full = out.rows == s_.batching.train_order->rows_of_step(0);
  out.micro_batches = int(share_.size());
  out.first_rows = share_.empty() ? 0 : share_[0].rows;
  return out;
}

void StepRunner::write_step_state(int parity, const EnqueuedStep& step) {
  StepState& state = network_.host_state();
  state.learning_rate = float(step.learning_rate);
  state.row_weight = 1.0f / float(step.rows);
  state.epoch = std::uint64_t(step.epoch);
  state.rng_step = state.attempted = std::uint64_t(step.number - 1);
  state.force_inf = double(step.number) == s_.config.test.force_overflow_at;
  std::ranges::fill(state.losses, LossSums{});
  network_.write_step(parity);
}

void StepRunner::drop_outdated_captures(std::int64_t step) {
  const std::size_t split = s_.batching.load_balancer->split_number(step);
  if (split == captured_split_) return;
  s_.compute.device->synchronize();  // a captured step may still be running
  captured_.clear();
  captured_split_ = split;
}

const char* StepRunner::name_step(const char* what, std::int64_t step) {
  *fmt::format_to_n(step_name_.data(), step_name_.size() - 1, "{}{}", what, step + 1).out = '\0';
  return step_name_.data();
}

}  // namespace millrace
