// One value of optim.group: what the optimizer does differently with the parameters whose name matches a pattern.
#pragma once
#include <optional>
#include <string>

namespace millrace {

struct ParameterGroup {
  std::string key = "optim.group";  // that gives it
  std::string pattern;              // of fnmatch(3): *, ? and [...]; * matches dots too
  // What is not given stays as it is.
  std::optional<double> lr;            // factor on the learning rate
  std::optional<double> weight_decay;  // in place of optim.weight_decay, also for biases and norms
  std::optional<bool> muon;            // false: optim.name = muon updates the parameter like adamw
  std::optional<bool> freeze;          // the optimizer does not change the parameter

  bool matches(const std::string& name) const;
  static ParameterGroup parse(const std::string&);  // "fc.* lr=0.1 weight_decay=0"; Error(config) otherwise
};

}  // namespace millrace
