// The sums of a step over micro-batches and ranks, but that of the gradient, which the reducer makes.
#include <algorithm>
#include <array>

#include "millrace/train/distributed/buckets.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {

void StepRunner::all_reduce_statistics() {
  const auto count = std::size_t(network_.layout().stats_count);
  if (count > 0 && s_.world.size() > 1)
    s_.compute.collective->all_reduce_async(network_.stats, 0, count, DType::f32, stats_tag);
}

void StepRunner::all_reduce_loss_weight() {
  if (!network_.loss_weight.data) return;
  const auto& parts = exact_ ? exact_->losses.weight[0].parts : std::array<double, 3>{};
  if (exact_)
    std::copy(parts.begin(), parts.end(), static_cast<double*>(network_.loss_weight.data));
  else
    network_.copy_loss_weight();
  if (s_.world.size() > 1)
    s_.compute.collective->all_reduce_async(network_.loss_weight, 0, parts.size(), DType::f64, loss_weight_tag);
}

void StepRunner::add_exactly() {
  StepState& state = network_.device_state();
  exact_->gradient.add(static_cast<const float*>(network_.gradient.data));
  exact_->statistics.add(static_cast<const float*>(network_.stats.data));
  exact_->losses.take(state);
}

void StepRunner::reduce_exactly() {
  all_reduce_loss_weight();
  if (s_.world.size() > 1) {
    exact_->gradient.all_reduce_async(exact_tag);
    exact_->statistics.all_reduce_async(stats_tag);
    s_.compute.collective->finish();
  }
  exact_->gradient.round_to(static_cast<float*>(network_.gradient.data));
  exact_->statistics.round_to(static_cast<float*>(network_.stats.data));
  reducer_.on_gradient_ready(0, network_.layout().count);
}

}  // namespace millrace
