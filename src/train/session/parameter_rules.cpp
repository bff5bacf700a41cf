#include "train/session/parameter_rules.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

std::string some_names(const Graph& graph) {
  constexpr std::size_t shown = 6;
  std::string out;
  // Evenly spread, so that the names of the first and of the last layers are among them.
  const std::size_t all = graph.parameters.size(), count = std::min(all, shown);
  for (std::size_t i = 0; i < count; ++i)
    out += (i ? ", " : "") + graph.parameters[count > 1 ? i * (all - 1) / (count - 1) : 0].name;
  return all > count ? out + fmt::format(" and {} more", all - count) : out;
}

}  // namespace

std::vector<ParameterRule> parameter_rules(const Graph& graph, float weight_decay,
                                           const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterRule> rules = default_rules(graph, weight_decay);
  for (const ParameterGroup& group : groups) {
    bool used = false;
    for (std::size_t p = 0; p < rules.size(); ++p) {
      if (!group.matches(graph.parameters[p].name)) continue;
      used = true;
      if (group.lr) rules[p].lr_factor = float(*group.lr);
      if (group.weight_decay) rules[p].weight_decay = float(*group.weight_decay);
      if (group.freeze) rules[p].frozen = *group.freeze;
    }
    if (!used)
      fail(Exit::config, "optim.group: {} matches no parameter. correct the pattern; parameters are {}", group.pattern,
           some_names(graph));
  }
  if (std::ranges::all_of(rules, &ParameterRule::frozen))
    fail(Exit::config, "optim.group: all parameters are frozen, so there is nothing to train. set freeze=off for some");
  return rules;
}

std::string describe_groups(const Graph& graph, const std::vector<ParameterGroup>& groups) {
  std::string out;
  for (const ParameterGroup& group : groups) {
    std::int64_t matched = 0, elements = 0;
    for (const Parameter& p : graph.parameters) {
      if (!group.matches(p.name)) continue;
      ++matched;
      elements += p.shape.count();
    }
    out += fmt::format("  optim.group: {} matches {} of {} parameters with {} elements{}\n", group.pattern, matched,
                       graph.parameters.size(), elements, group.freeze.value_or(false) ? ", frozen" : "");
  }
  return out;
}

}  // namespace millrace
