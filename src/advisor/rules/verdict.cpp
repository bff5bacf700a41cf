// How much of the time each bound takes, and the verdict as text.
#include "millrace/advisor/rules/verdict.hpp"

#include <algorithm>

#include "advisor/rules/evidence.hpp"
#include "advisor/rules/thresholds.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/base/value_table.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

// The largest bound worth stating although no finding acts against it; compute if there is none. A single checkpoint is
// never too many. Ranks that are late in turn are normal on a machine that also does other work.
Bound largest_without_remedy(const BottleneckMetrics& e) {
  Bound largest = Bound::compute;
  const auto worth_stating = [&](Bound b) {
    if (b == Bound::checkpoint && e.run.checkpoints < 2) return false;
    return e.recoverable(b) >= min_stated_share || e.share(b) >= min_late_share;
  };
  for (const Bound b : {Bound::communication, Bound::input, Bound::copy, Bound::checkpoint})
    if (worth_stating(b) && (largest == Bound::compute || e.share(b) > e.share(largest))) largest = b;
  return largest;
}

// `with_evidence` is false after an earlier finding against the same bound, which has stated the evidence.
std::string line_of(const Finding& f, bool with_evidence = true) {
  return cat(with_evidence ? cat(name_of(f.bound), ": ", f.evidence, ". ") : "", f.advice,
             f.at_most ? text(": at most %.2fx%s", f.gain, f.whole_bound ? " (if none of this time were lost)" : "")
                       : text(" gives %.2fx", f.gain));
}

// Does the first finding act against what bounds the run? The bound is stated first even if remedies are known only
// against smaller ones.
bool leads_with_finding(const BottleneckMetrics& e, const std::vector<Finding>& found, Bound largest) {
  if (found.empty()) return false;
  return e.probed || largest == Bound::compute || e.share(largest) <= e.share(found[0].bound) ||
         std::any_of(found.begin(), found.end(), [largest](const Finding& f) { return f.bound == largest; });
}

// The first line where no finding leads.
std::string line_without_finding(const BottleneckMetrics& e, Bound largest) {
  const std::string computing = bound_evidence(e, Bound::compute);
  if (largest != Bound::compute)
    return cat(name_of(largest), ": ", bound_evidence(e, largest),
               e.probed ? ". none of the tried changes helps\n" : ". no configuration key is known to help\n");
  if (const std::string& problem = e.config.machine.placement_problem; !problem.empty())
    return cat(name_of(Bound::compute), ": ", computing, "; ", problem, "\n");
  if (e.machine.contended())
    return cat(name_of(Bound::compute), ": ", computing,
               text("; other work occupies %.1f of a rank's %.0f cores. no configuration key is known to help\n",
                    e.machine.contention.others + e.machine.contention.stolen, e.machine.contention.cores));
  return cat("nothing worth changing: ", computing,
             e.share(Bound::communication) < min_stated_share ? "" : "; " + bound_evidence(e, Bound::communication),
             "\n");
}

std::string probe_lines(const BottleneckMetrics& e) {
  std::string out =
      cat("\nmeasured, ms per step: ", ms_text(e.times.step), " as configured, ", ms_text(e.without.input),
          text(" with samples already in memory (at most %.2fx)", e.times.step / e.without.input));
  if (e.config.machine.ranks > 1)
    out += cat(", ", ms_text(e.without.communication),
               text(" also without all-reduces (%.2fx)", e.times.step / e.without.communication));
  if (e.without.optimizer > 0) out += cat(", ", ms_text(e.without.optimizer), " also without the optimizer");
  out += "\n";
  const double all_reduce = e.communication.all_reduce_seconds, bytes = e.communication.gradient_bytes;
  if (all_reduce > 0)
    out += text("an all-reduce of the whole gradient (%s) takes %s ms by itself, bus bandwidth %.2f GB/s\n",
                format_bytes(std::uint64_t(bytes)).c_str(), ms_text(all_reduce).c_str(),
                2 * (e.config.machine.ranks - 1.0) / e.config.machine.ranks * bytes / all_reduce * 1e-9);
  const double flops = e.computing.flops_per_step, peak = e.computing.peak_flops;
  if (flops > 0 && peak > 0)
    out += text("a rank computes %sFLOP per step, %.1f %% of the %sFLOP/s that its device reaches at best (MFU)\n",
                format_count(flops).c_str(), 100 * flops / (e.times.step * peak), format_count(peak).c_str());
  return out;
}

std::string line_of(const Trial& t) {
  const Change& c = t.change;
  if (!t.failure.empty()) return cat("  ", c.key, " -> ", c.to, ": not tried, ", t.failure, "\n");
  std::string out = text("  %-18s %10s -> %-10s %9s ms, baseline %s ms: %.2fx", c.key.c_str(), c.from.c_str(),
                         c.to.c_str(), ms_text(t.step).c_str(), ms_text(t.baseline).c_str(), t.baseline / t.step);
  if (!c.caution.empty()) out += "; " + c.caution;
  if (!t.is_significant()) out += text("; noise: faster in only %d of %d rounds", t.faster, t.rounds);
  return out + "\n";
}

}  // namespace

const char* name_of(Bound b) {
  constexpr TableRow<Bound, const char*> names[] = {{Bound::input, "input-bound"},
                                                    {Bound::copy, "copy-bound"},
                                                    {Bound::communication, "communication-bound"},
                                                    {Bound::imbalance, "imbalanced"},
                                                    {Bound::checkpoint, "checkpoint-bound"},
                                                    {Bound::evaluation, "evaluation-bound"},
                                                    {Bound::host, "host-bound"},
                                                    {Bound::startup, "start-up-bound"},
                                                    {Bound::compute, "compute-bound"}};
  static_assert(std::size(names) == bound_count);
  return find_value(names, b, "?");
}

double BottleneckMetrics::share(Bound b) const {
  const double all = times.step + times.checkpoint + times.evaluation;
  if (b == Bound::startup) return run.wall_seconds > 0 ? run.startup_seconds / run.wall_seconds : 0;
  if (all <= 0) return 0;
  double left = 1;
  const auto take = [&left](double part) {
    part = std::clamp(part, 0.0, left);
    left -= part;
    return part;
  };
  const double parts[] = {take((times.step - without.input) / all),
                          take(times.copy / all),
                          take(config.machine.ranks > 1 ? (without.input - without.communication) / all : 0),
                          take(times.imbalance / all),
                          take(times.checkpoint / all),
                          take(times.evaluation / all),
                          take(times.host / all)};
  return b == Bound::compute ? left : parts[int(b)];
}

double BottleneckMetrics::recoverable(Bound b) const {
  if (b != Bound::communication) return share(b);
  return std::max(0.0, share(b) - times.late_rank_wait / (times.step + times.checkpoint + times.evaluation));
}

Bound largest_bound(const BottleneckMetrics& e) {
  Bound largest = Bound::compute;
  for (const Bound b : {Bound::input, Bound::copy, Bound::communication, Bound::imbalance, Bound::checkpoint,
                        Bound::evaluation, Bound::host})
    if (e.share(b) >= min_stated_share && (largest == Bound::compute || e.share(b) > e.share(largest))) largest = b;
  return largest;
}

std::string verdict(const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  if (e.times.step <= 0) return "";
  const auto found = findings(e, trials);
  const Bound largest = largest_without_remedy(e);
  const bool leads = leads_with_finding(e, found, largest);
  std::string out = leads ? line_of(found[0]) + "\n" : line_without_finding(e, largest);
  for (std::size_t i = leads ? 1 : 0; i < found.size(); ++i) {
    const auto here = found.begin() + std::ptrdiff_t(i);
    const bool stated = std::any_of(found.begin(), here, [&](const Finding& f) { return f.bound == found[i].bound; });
    out += cat("  ", i + 1, ". ", line_of(found[i], !stated), "\n");
  }
  for (const Hint& h : hints(e))
    out += cat("  worth a trial: ", h.advice, " (", join_clauses(h.evidence, h.caution), ")\n");
  if (!e.probed) return out;
  out += probe_lines(e);
  for (const Trial& t : trials) out += line_of(t);
  return out;
}

}  // namespace millrace
