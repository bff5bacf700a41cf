// The results of a step, on which the ranks agree.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

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
  // With exact_ the loss is in three parts, which have the same sum in any order.
  const std::array<double, 3> loss = exact_ ? exact_->loss.parts : std::array{state.loss_sum, 0.0, 0.0},
                              weight = exact_ ? exact_->loss_weight.parts : std::array{state.loss_weight, 0.0, 0.0};
  const std::array own{loss[0],
                       double(state.counted),
                       double(flags.stop),
                       double(flags.checkpoint),
                       double(flags.saving),
                       double(enqueued.unread),
                       loss[1],
                       loss[2],
                       weight[0],
                       weight[1],
                       weight[2]};
  const auto norm = equal_bits_contribution(state.found_inf ? ~0u : std::bit_cast<std::uint32_t>(state.grad_norm));
  std::array<double, own.size() + equal_bits_terms> sums;
  std::copy(norm.begin(), norm.end(), std::copy(own.begin(), own.end(), sums.begin()));
  timer_.begin_sync_wait();
  s_.compute.collective->all_reduce_scalars(sums);
  timer_.end_sync_wait();

  StepResult out;
  out.step = enqueued.number;
  out.found_inf = state.found_inf != 0;
  out.at_floor = !state.scale_on || state.loss_scale <= state.scale_floor;
  const double loss_weight = sums[8] + (sums[9] + sums[10]);
  out.counted = loss_weight > 0;
  out.stop = sums[2] > 0;
  out.checkpoint = sums[3] > 0;
  out.saving = sums[4] > 0;
  out.replicas_differ = !all_bits_equal(std::span(sums).last<equal_bits_terms>(), s_.world.size());
  StepMetrics& m = out.metrics;
  m.step = enqueued.number;
  m.epoch = enqueued.epoch;
  m.samples = enqueued.samples;
  m.loss = out.counted ? (sums[0] + (sums[6] + sums[7])) / loss_weight : std::numeric_limits<double>::quiet_NaN();
  m.unread_samples = std::int64_t(sums[5]);
  m.lr = enqueued.learning_rate;
  m.grad_norm = state.grad_norm;
  m.loss_scale = state.loss_scale;
  m.skipped = out.found_inf;
  return out;
}

}  // namespace millrace
