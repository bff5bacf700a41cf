// The rules of the verdict: what may help against a bound, when it applies, and what was measured in its favour.
//
// To add a rule:
//   1. Choose the bound that the change acts against and open the file of that bound:
//   src/advisor/rules/<bound>_rules.cpp
//      (checkpoint, evaluation, host and startup share other_rules.cpp).
//   2. If the rule needs a value that is not there yet, add a field to a part of ResolvedConfig or BottleneckMetrics.
//      Fill it in train/session/resolved_config.cpp, bottleneck_metrics.cpp or advisor/trials/measure.cpp.
//   3. Write one function that returns the Rule: key, present value, values to try, evidence, and how it is proven.
//   4. Add the function to the list at the end of the file. Of several rules against one bound, the first that applies
//      leads the finding; the others follow after "or".
//   5. Extend all_kinds() in tests/advisor/metrics_samples.hpp so that the rule applies somewhere, test when it must not
//      apply, and add a row to docs/reference/rules.md.
#pragma once
#include <string>
#include <vector>

#include "millrace/advisor/rules/bottleneck_metrics.hpp"

namespace millrace {

using Values = std::vector<std::string>;

struct Rule {
  // How the gain of a change is known.
  enum class Proof {
    trial,  // by running with the change; without a trial, an upper bound is stated from the measured time
    time,   // by measured time alone: it cannot be tried in a few steps
    hint    // it is not: the change is only mentioned
  };

  Bound bound = Bound::compute;                             // what the change acts against
  const char* key = "";                                     // a configuration key, or a few words where no key exists
  std::string (*from)(const BottleneckMetrics&) = nullptr;  // the present value
  Values (*to)(const BottleneckMetrics&) = nullptr;         // values that may help; none: the rule does not apply
  std::string (*evidence)(const BottleneckMetrics&) = nullptr;  // what was measured in favour of the change
  Proof proof = Proof::trial;
  const char* caution = "";  // what else changes; empty: the results of training stay the same
  double min_gain = 1.05;    // smaller gains are not worth the change
  // The speed-up known from measured time alone; for Proof::trial an upper bound. Null: as if the whole bound vanished.
  double (*gain)(const BottleneckMetrics&) = nullptr;
};

// All rules, bound by bound.
const std::vector<Rule>& rules();

}  // namespace millrace
