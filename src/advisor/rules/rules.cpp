// All rules in one list, and the rules that act against several bounds.
#include "millrace/advisor/rules/rules.hpp"

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"

namespace millrace {

Rule fix_binding(Bound bound, Rule::Proof proof) {
  return {.bound = bound,
          .key = "launcher",
          .from = [](const BottleneckMetrics&) { return std::string("as launched"); },
          .to =
              [](const BottleneckMetrics& e) {
                const std::string& problem = e.config.machine.placement_problem;
                if (problem.empty()) return Values{};
                return Values{problem.ends_with("--cpus-per-task") ? "more --cpus-per-task" : "--bind-to none"};
              },
          .evidence = [](const BottleneckMetrics& e) { return e.config.machine.placement_problem; },
          .proof = proof};
}

Rule fewer_ranks(Bound bound, Rule::Proof proof, const char* caution) {
  return {.bound = bound,
          .key = "ranks",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.machine.ranks); },
          .to =
              [](const BottleneckMetrics& e) {
                return e.config.machine.oversubscribed ? Values{"as many as there are cores"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics&) {
                return std::string("there are more ranks than cores, so each waits while another computes");
              },
          .proof = proof,
          .caution = caution};
}

Rule larger_global_batch(Bound bound, Rule::Proof proof) {
  return {.bound = bound,
          .key = "train.global_batch",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.training.global_batch); },
          .to = [](const BottleneckMetrics& e) { return Values{std::to_string(4 * e.config.training.global_batch)}; },
          .proof = proof};
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> out;
    for (const auto& list : {input_rules, copy_rules, communication_rules, compute_rules, imbalance_rules, other_rules})
      for (const Rule& rule : list()) out.push_back(rule);
    return out;
  }();
  return all;
}

}  // namespace millrace
