// Resolves optim.group against the parameters of a network.
#pragma once
#include <string>
#include <vector>

#include "millrace/config/parameter_group.hpp"
#include "millrace/model/layout.hpp"

namespace millrace {

// One rule for each parameter of the graph. If several groups match a parameter, the last one that gives a property
// determines it. Error(config): a group matches no parameter, all parameters are frozen, or a group has muon= for
// another optimizer.
std::vector<ParameterRule> parameter_rules(const Graph&, OptimizerSpec::Kind, float weight_decay,
                                           const std::vector<ParameterGroup>&);

// For people: how many parameters each group matches, one line each.
std::string describe_groups(const Graph&, const std::vector<ParameterGroup>&);
// For people: how many parameters muon updates as matrices; "" for other optimizers.
std::string describe_muon(const Graph&, const OptimizerSpec& complete);

}  // namespace millrace
