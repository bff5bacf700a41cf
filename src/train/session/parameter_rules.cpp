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

std::vector<ParameterRule> parameter_rules(const Graph& graph, OptimizerSpec::Kind optimizer, float weight_decay,
                                           const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterRule> rules = default_rules(graph, weight_decay);
  const bool muon = optimizer == OptimizerSpec::Kind::muon;
  if (muon) add_matrices(graph, rules);
  const std::vector<ParameterRule> defaults = rules;
  for (const ParameterGroup& group : groups) {
    bool used = false, of_matrices = false;
    if (group.muon && !muon)
      fail(Exit::config, "optim.group: {} has muon=, but optim.name is not muon. remove muon=", group.pattern);
    for (std::size_t p = 0; p < rules.size(); ++p) {
      if (!group.matches(graph.parameters[p].name)) continue;
      used = true;
      of_matrices = of_matrices || defaults[p].rows > 0;
      if (group.lr) rules[p].lr_factor = float(*group.lr);
      if (group.weight_decay) rules[p].weight_decay = float(*group.weight_decay);
      if (group.muon) {
        rules[p].rows = *group.muon ? defaults[p].rows : 0;
        rules[p].columns = *group.muon ? defaults[p].columns : 0;
      }
      if (group.freeze) rules[p].frozen = *group.freeze;
    }
    if (!used)
      fail(Exit::config, "{}: {} matches no parameter. correct the pattern; parameters are {}", group.key,
           group.pattern, some_names(graph));
    if (group.muon.value_or(false) && !of_matrices)
      fail(Exit::config,
           "optim.group: {} has muon=on, but muon updates none of these parameters. remove muon=", group.pattern);
  }
  if (std::ranges::all_of(rules, &ParameterRule::frozen))
    fail(Exit::config, "{}: all parameters are frozen, so there is nothing to train. {}", groups.back().key,
         groups.back().key == "train.freeze" ? "leave some out" : "set freeze=off for some");
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
    out += fmt::format("  {}: {} matches {} of {} parameters with {} elements{}\n", group.key, group.pattern, matched,
                       graph.parameters.size(), elements, group.freeze.value_or(false) ? ", frozen" : "");
  }
  return out;
}

std::string describe_muon(const Graph& graph, const OptimizerSpec& optimizer) {
  if (optimizer.kind != OptimizerSpec::Kind::muon) return "";
  std::int64_t matrices = 0, elements = 0;
  for (const OptimizerSegment& s : optimizer.segments) {
    matrices += s.rows > 0 ? 1 : 0;
    elements += s.rows * s.columns;
  }
  return fmt::format(
      "  optim.name: muon updates {} of {} parameters, matrices with {} elements. the others that train are updated as "
      "by adamw\n",
      matrices, graph.parameters.size(), elements);
}

}  // namespace millrace
