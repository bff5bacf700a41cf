// ConvSelector: chooses the methods of each convolution, by fixed rules or by timing all methods on this machine. Timed
// choices are kept in the user's cache folder (millrace/plans/plan_selector.hpp). With fixed rules, the choice depends
// on nothing but the Spec, the instruction set and (with AVX2) the number of threads, so results are bitwise
// reproducible. So do the candidates for timing: ranks that choose together must be alike in these.
#pragma once
#include <optional>

#include "cpu/common/conv_methods.hpp"
#include "millrace/ops/conv.hpp"
#include "millrace/plans/plan_selector.hpp"

namespace millrace::cpu {

struct ConvSelectorOptions {
  bool winograd = true;     // whether Winograd's filtering is a candidate
  bool timing = false;      // time the candidates; false: fixed rules
  double most_seconds = 5;  // of timing by one selector. The rules choose for the rest; the next start times it
  PlanSelectorOptions plans = {};
  // Seconds that the computing threads waited for cores, since any time; -1: not known. Tests replace it.
  std::function<double()> waited = {};
};

class ConvSelector {
 public:
  // Collective if options.timing and options.plans.broadcast are set.
  explicit ConvSelector(const ConvSelectorOptions&);
  // Collective under the same conditions: see PlanSelector::get().
  ConvMethods methods(const ConvSpec&);
  // By the fixed rules, without timing.
  ConvMethods methods_by_rule() const;
  // Whether Winograd's filtering is a candidate for convolutions of this type.
  bool filters(DType) const;
  // While it is off, choices follow the rules.
  void set_timing(bool on) { timing_ = on; }

 private:
  PlanEntry select(const ConvSpec&, ConvPass, const std::vector<ConvMethod>& candidates);
  const ConvSelectorOptions options_;
  bool timing_ = true;
  double spent_seconds_ = 0;
  std::optional<PlanSelector> plans_;
};

}  // namespace millrace::cpu
