// From the rules and trials to findings and hints.
#include <fmt/core.h>

#include <algorithm>

#include "advisor/rules/evidence.hpp"
#include "advisor/rules/rule_text.hpp"
#include "advisor/rules/thresholds.hpp"
#include "millrace/advisor/rules/rules.hpp"
#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

std::string advice_of(const Rule& rule, const BottleneckMetrics& e, const std::string& to) {
  return fmt::format("{} {} -> {}", rule.key, rule.from(e), to);
}

bool changes_something(const Rule& rule, const BottleneckMetrics& e, const Values& to) {
  return !to.empty() && to.front() != rule.from(e);
}

// Findings from trials. Of several values of one key, the smallest change that gains nearly as much is kept.
void add_tried(std::vector<Finding>& out, const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  for (const Trial& t : trials) {
    if (!t.failure.empty() || !t.is_significant() || t.step <= 0 || t.baseline / t.step < t.change.min_gain) continue;
    const double gain = t.baseline / t.step;
    const auto same = std::find_if(out.begin(), out.end(), [&](const Finding& f) {
      return f.advice.compare(0, t.change.key.size() + 1, t.change.key + " ") == 0;
    });
    Finding finding{.bound = t.change.bound,
                    .gain = gain,
                    .evidence = join_clauses(bound_evidence(e, t.change.bound), t.change.evidence),
                    .advice = fmt::format("{} {} -> {}", t.change.key, t.change.from, t.change.to),
                    .caution = t.change.caution};
    if (same == out.end())
      out.push_back(std::move(finding));
    else if (gain > 1.05 * same->gain)
      *same = std::move(finding);
  }
}

// Can this rule be stated from measured time alone?
bool is_stated(const Rule& rule, const BottleneckMetrics& e) {
  if (rule.proof == Rule::Proof::hint || (rule.proof == Rule::Proof::trial && e.probed)) return false;
  if (rule.bound == Bound::compute && !rule.gain) return false;
  return e.recoverable(rule.bound) >= (rule.bound == Bound::startup ? min_stated_startup : min_stated_share);
}

// Findings from measured time: the first rule against each bound; further rules are appended after "or".
void add_stated(std::vector<Finding>& out, const BottleneckMetrics& e) {
  std::vector<Finding> stated;
  for (const Rule& rule : rules()) {
    if (!is_stated(rule, e)) continue;
    const Values to = rule.to(e);
    if (!changes_something(rule, e, to)) continue;
    const double gain = rule.gain ? rule.gain(e) : 1 / std::max(0.01, 1 - e.recoverable(rule.bound));
    if (gain < rule.min_gain) continue;
    const auto same =
        std::find_if(stated.begin(), stated.end(), [&](const Finding& f) { return f.bound == rule.bound; });
    if (same != stated.end() && !rule.gain) {
      same->advice += fmt::format(", or {}", advice_of(rule, e, to.front()));
      continue;
    }
    stated.push_back({.bound = rule.bound,
                      .gain = gain,
                      .at_most = !rule.gain || rule.proof == Rule::Proof::trial,
                      .whole_bound = !rule.gain,
                      .evidence = join_clauses(bound_evidence(e, rule.bound), rule.evidence(e)),
                      .advice = advice_of(rule, e, to.front()),
                      .caution = rule.caution});
  }
  out.insert(out.end(), stated.begin(), stated.end());
}

// Is this rule mentioned without a number? Hints are; so are, without trials, rules against computing.
bool is_hint(const Rule& rule, const BottleneckMetrics& e) {
  const bool computing = rule.bound == Bound::compute;
  const bool always = computing && rule.proof == Rule::Proof::hint;  // a wrong start shows as waiting too
  if (!always && e.share(rule.bound) < (computing ? 0.5 : min_stated_share)) return false;
  const bool untried = computing && !rule.gain && rule.proof == Rule::Proof::trial && !e.probed;
  return untried || rule.proof == Rule::Proof::hint;
}

}  // namespace

std::vector<Change> changes_to_try(const BottleneckMetrics& e) {
  std::vector<Change> out;
  for (const Rule& rule : rules()) {
    if (rule.proof != Rule::Proof::trial || e.share(rule.bound) < min_tried_share) continue;
    for (const std::string& to : rule.to(e))
      if (to != rule.from(e))
        out.push_back({rule.bound, rule.key, rule.from(e), to, rule.caution, rule.min_gain, rule.evidence(e)});
  }
  return out;
}

std::vector<Finding> findings(const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  std::vector<Finding> out;
  add_tried(out, e, trials);
  double best[bound_count] = {};  // the largest known gain against each bound
  // Of nearly equal gains, the change that leaves the results of training as they are comes first. An upper bound never
  // outranks a known gain against the same bound.
  const auto weight = [&best](const Finding& f) {
    const double own = f.gain * (f.caution.empty() ? 1.02 : 1), known = best[int(f.bound)];
    return f.whole_bound && known > 0 ? std::min(own, 0.99 * known) : own;
  };
  for (const Finding& f : out) best[int(f.bound)] = std::max(best[int(f.bound)], weight(f));
  const auto tried_count = std::ptrdiff_t(out.size());
  add_stated(out, e);
  for (auto f = out.begin() + tried_count; f != out.end(); ++f)
    if (!f->whole_bound) best[int(f->bound)] = std::max(best[int(f->bound)], weight(*f));
  std::stable_sort(out.begin(), out.end(), [&](const Finding& a, const Finding& b) { return weight(a) > weight(b); });
  return out;
}

std::vector<Hint> hints(const BottleneckMetrics& e) {
  std::vector<Hint> out;
  for (const Rule& rule : rules()) {
    if (!is_hint(rule, e)) continue;
    const Values to = rule.to(e);
    if (!changes_something(rule, e, to)) continue;
    const std::string advice = advice_of(rule, e, to.front());
    if (std::any_of(out.begin(), out.end(), [&](const Hint& h) { return h.advice == advice; })) continue;
    out.push_back({advice, rule.evidence(e), rule.caution});
  }
  return out;
}

}  // namespace millrace
