// The results of a step, on which the ranks agree.
#include <algorithm>
#include <array>
#include <bit>

#include "millrace/base/error.hpp"
#include "millrace/train/step/step.hpp"
#include "train/step/equal_bits.hpp"

namespace millrace {

// For tests: a memory fault of the last rank.
void StepRunner::damage_gradient(const EnqueuedStep& step) {
  if (double(step.number) != s_.config.test.damage_gradient_at || s_.world.rank() + 1 < s_.world.size()) return;
  if (!s_.compute.device->shares_host_memory()) fail(Exit::config, "test.damage_gradient_at needs run.device = cpu");
  static_cast<float*>(network_.gradient.data)[0] += 1;
}

StepResult StepRunner::collect(std::int64_t step, const StepFlags& flags) {
  const ScopedLabel label(*s_.compute.device, name_step("the results of step ", step));
  const int parity = int(step % 2);
  const EnqueuedStep& enqueued = enqueued_[std::size_t(parity)];
  const StepState& state = network_.read_state(parity);  // waits until the device is done with the step
  StepResult out = agree(state, enqueued, flags);
  timer_.finish(parity, enqueued, out.metrics);
  return out;
}

StepResult StepRunner::agree(const StepState& state, const EnqueuedStep& enqueued, const StepFlags& flags) {
  const std::array own{double(flags.stop), double(flags.checkpoint), double(flags.saving), double(enqueued.unread)};
  const auto norm = equal_bits_contribution(state.found_inf ? ~0u : std::bit_cast<std::uint32_t>(state.grad_norm));
  constexpr std::size_t losses_at = own.size() + equal_bits_terms;
  std::array<double, losses_at + LossMeans::max_losses * LossMeans::values_of_loss> most;
  const std::span sums = std::span(most).first(losses_at + losses_.value_count());
  std::copy(norm.begin(), norm.end(), std::copy(own.begin(), own.end(), sums.begin()));
  losses_.put(state, exact_ ? &exact_->losses : nullptr, sums.subspan(losses_at));
  timer_.begin_sync_wait();
  s_.compute.collective->all_reduce_scalars(sums);
  timer_.end_sync_wait();

  StepResult out;
  out.step = enqueued.number;
  out.found_inf = state.found_inf != 0;
  out.at_floor = !state.scale_on || state.loss_scale <= state.scale_floor;
  const LossMeans::Means means = losses_.means(sums.subspan(losses_at), enqueued.rows);
  out.counted = means.counted;
  out.stop = sums[0] > 0;
  out.checkpoint = sums[1] > 0;
  out.saving = sums[2] > 0;
  out.replicas_differ = !all_bits_equal(sums.subspan<own.size(), equal_bits_terms>(), s_.world.size());
  StepMetrics& m = out.metrics;
  m.step = enqueued.number;
  m.epoch = enqueued.epoch;
  m.samples = enqueued.samples;
  m.loss = means.total;
  m.loss_names = losses_.names();
  std::copy(means.each.begin(), means.each.end(), m.losses.begin());
  m.unread_samples = std::int64_t(sums[3]);
  m.lr = enqueued.learning_rate;
  m.grad_norm = state.grad_norm;
  m.loss_scale = state.loss_scale;
  m.skipped = out.found_inf;
  return out;
}

}  // namespace millrace
