// What was measured of a bound, in words. Internal to advisor/rules.
#pragma once
#include <string>

#include "millrace/advisor/rules/bottleneck_metrics.hpp"

namespace millrace {

// "50 % of the step is spent waiting for samples; ..."
std::string bound_evidence(const BottleneckMetrics&, Bound);
// "first; second", or `first` alone where the second clause is empty.
std::string join_clauses(const std::string& first, const std::string& second);
// Milliseconds, with more digits for steps that take microseconds.
std::string ms_text(double seconds);

}  // namespace millrace
