// Rules against waiting for a slow rank.
#include <fmt/core.h>

#include <algorithm>

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"

namespace millrace {
namespace {

Rule speed_up_the_slow_rank() {
  return {
      .bound = Bound::imbalance,
      .key = "rank",
      .from = [](const BottleneckMetrics& e) { return std::to_string(e.straggler.rank) + " on " + e.straggler.host; },
      .to =
          [](const BottleneckMetrics& e) { return e.straggler.rank >= 0 ? Values{"as fast as the others"} : Values{}; },
      .evidence = [](const BottleneckMetrics& e) { return e.straggler.cause; },
      .proof = Rule::Proof::time};
}

Rule balance_the_split() {
  return {.bound = Bound::imbalance,
          .key = "train.balance",
          .from = [](const BottleneckMetrics&) { return std::string("even"); },
          .to =
              [](const BottleneckMetrics& e) {
                const bool applies = !e.config.training.balanced && e.times.balance_gain_seconds > 0 &&
                                     e.config.machine.placement_problem.empty();
                return applies ? Values{"auto"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("a split proportional to the ranks' speed would save {:.1f} ms per step ({})",
                                   ms(e.times.balance_gain_seconds), e.straggler.cause);
              },
          .caution =
              "micro-batches become an eighth of a rank's share: batch norm computes its statistics over other "
              "batches",
          .gain =
              [](const BottleneckMetrics& e) {
                return e.times.step / std::max(1e-9, e.times.step - e.times.balance_gain_seconds);
              }};
}

}  // namespace

std::vector<Rule> imbalance_rules() {
  return {fix_binding(Bound::imbalance, Rule::Proof::time), speed_up_the_slow_rank(), balance_the_split()};
}

}  // namespace millrace
