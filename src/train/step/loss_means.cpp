#include "millrace/train/step/loss_means.hpp"

#include <algorithm>
#include <limits>

namespace millrace {

void ExactLosses::take(StepState& state) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    LossSums& of = state.losses[i];
    sum[i].add(of.sum);
    weight[i].add(of.weight);
    of.sum = of.weight = 0;
  }
}

LossMeans::LossMeans(const Graph& graph, bool own_losses) {
  for (const int i : graph.losses()) {
    const Node& node = graph.nodes[std::size_t(i)];
    losses_.push_back({double(loss_term(node.spec).factor), terms_of_row(node.spec)});
    if (own_losses) names_.push_back(node.name);
  }
}

void LossMeans::put(const StepState& state, const ExactLosses* exact, std::span<double> to) const {
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const std::span<double> of = to.subspan(i * values_of_loss, values_of_loss);
    const LossSums& sums = state.losses[i];
    const std::array<double, 3> sum = exact ? exact->sum[i].parts : std::array{sums.sum, 0.0, 0.0},
                                weight = exact ? exact->weight[i].parts : std::array{sums.weight, 0.0, 0.0};
    std::copy(weight.begin(), weight.end(), std::copy(sum.begin(), sum.end(), of.begin()));
  }
}

LossMeans::Means LossMeans::means(std::span<const double> sums, std::int64_t rows) const {
  Means out{std::numeric_limits<double>::quiet_NaN()};
  double total = 0;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const std::span<const double> of = sums.subspan(i * values_of_loss, values_of_loss);
    const double sum = of[0] + (of[1] + of[2]), weight = of[3] + (of[4] + of[5]);
    out.each[i] = sum / (names_.empty() ? weight : double(rows) * double(losses_[i].terms_of_row));
    total += losses_[i].factor * out.each[i];
    out.counted = out.counted || weight > 0;
  }
  if (out.counted) out.total = total;
  return out;
}

}  // namespace millrace
