// The losses of a network: their sums over micro-batches and ranks, and the means that follow.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/device/step_state.hpp"
#include "millrace/model/graph.hpp"
#include "millrace/train/step/exact_sum.hpp"

namespace millrace {

// With run.reproducible = strict: the sums of the micro-batches, whose order does not matter.
struct ExactLosses {
  std::array<ExactDouble, StepState::max_losses> sum, weight;
  void take(StepState&);  // adds the sums of a micro-batch, and sets those of the state to zero
};

class LossMeans {
 public:
  static constexpr std::size_t max_losses = StepState::max_losses;
  static constexpr std::size_t values_of_loss = 6;

  // The losses of the graph, before any rewrite. own_losses: it has lines `loss`, of which each is shown by its name.
  LossMeans(const Graph&, bool own_losses);
  // By LossTerm::number; empty without own losses. They live as long as this object.
  std::span<const std::string> names() const { return names_; }

  // What the ranks have to add up: value_count() values. exact: null without strict.
  std::size_t value_count() const { return losses_.size() * values_of_loss; }
  void put(const StepState&, const ExactLosses* exact, std::span<double> to) const;

  struct Means {
    double total;                           // what is minimised; NaN: no label counts
    std::array<double, max_losses> each{};  // by number, without its factor
    bool counted = false;                   // some label counts
  };
  // sums: those of put(), over all ranks. rows: of all ranks. The mean of a network's only loss is over the labels that
  // count, by their weights; own losses are means over all rows, in which a label that does not count adds zero.
  Means means(std::span<const double> sums, std::int64_t rows) const;

 private:
  struct Loss {
    double factor;
    std::int64_t terms_of_row;
  };
  std::vector<Loss> losses_;
  std::vector<std::string> names_;
};

}  // namespace millrace
