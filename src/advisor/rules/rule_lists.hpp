// The rules of each bound, in the order in which they are considered, and rules that act against several bounds.
// Internal to advisor/rules; rules.hpp says how to add a rule.
#pragma once
#include <vector>

#include "millrace/advisor/rules/rules.hpp"

namespace millrace {

std::vector<Rule> input_rules();
std::vector<Rule> copy_rules();
std::vector<Rule> communication_rules();
std::vector<Rule> compute_rules();
std::vector<Rule> imbalance_rules();
std::vector<Rule> other_rules();  // checkpoint, evaluation, host, startup

// Start mpirun with --bind-to none: the ranks are bound to the wrong cores.
Rule fix_binding(Bound, Rule::Proof);
// Start as many ranks as there are cores.
Rule fewer_ranks(Bound, Rule::Proof, const char* caution);
// Four times the global batch, whatever the metrics say.
Rule larger_global_batch(Bound, Rule::Proof);

}  // namespace millrace
