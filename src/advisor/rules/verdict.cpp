// How much of the time each bound takes, and the verdict as text.
#include "millrace/advisor/rules/verdict.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "advisor/rules/evidence.hpp"
#include "advisor/rules/thresholds.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/base/value_table.hpp"

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
  return fmt::format(
      "{}{}{}", with_evidence ? fmt::format("{}: {}. ", name_of(f.bound), f.evidence) : "", f.advice,
      f.at_most ? fmt::format(": at most {:.2f}x{}", f.gain, f.whole_bound ? " (if none of this time were lost)" : "")
                : fmt::format(" gives {:.2f}x", f.gain));
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
    return fmt::format("{}: {}{}", name_of(largest), bound_evidence(e, largest),
                       e.probed ? ". none of the tried changes helps\n" : ". no configuration key is known to help\n");
  // Nothing acts against it, but a run that mostly evaluates is not bound by computing.
  if (const Bound most = largest_bound(e); e.share(most) > e.share(Bound::compute))
    return fmt::format("{}: {}; {}\n", name_of(most), bound_evidence(e, most), computing);
  if (const std::string& problem = e.config.machine.placement_problem; !problem.empty())
    return fmt::format("{}: {}; {}\n", name_of(Bound::compute), computing, problem);
  if (e.machine.contended())
    return fmt::format(
        "{}: {}{}", name_of(Bound::compute), computing,
        fmt::format("; other work occupies {:.1f} of a rank's {:.0f} cores. no configuration key is known to help\n",
                    e.machine.contention.others + e.machine.contention.stolen, e.machine.contention.cores));
  return fmt::format(
      "nothing worth changing: {}{}\n", computing,
      e.share(Bound::communication) < min_stated_share ? "" : "; " + bound_evidence(e, Bound::communication));
}

std::string probe_lines(const BottleneckMetrics& e) {
  std::string out =
      fmt::format("\nmeasured, ms per step: {} as configured, {}{}", ms_text(e.times.step), ms_text(e.without.input),
                  fmt::format(" with samples already in memory (at most {:.2f}x)", e.times.step / e.without.input));
  if (e.config.machine.ranks > 1)
    out += fmt::format(", {}{}", ms_text(e.without.communication),
                       fmt::format(" also without all-reduces ({:.2f}x)", e.times.step / e.without.communication));
  if (e.without.optimizer > 0) out += fmt::format(", {} also without the optimizer", ms_text(e.without.optimizer));
  out += "\n";
  const double all_reduce = e.communication.all_reduce_seconds, bytes = e.communication.gradient_bytes;
  if (all_reduce > 0)
    out += fmt::format("an all-reduce of the whole gradient ({}) takes {} ms by itself, bus bandwidth {:.2f} GB/s\n",
                       format_bytes(std::uint64_t(bytes)), ms_text(all_reduce),
                       2 * (e.config.machine.ranks - 1.0) / e.config.machine.ranks * bytes / all_reduce * 1e-9);
  // A step that was faster than the probe of the peak has itself shown the peak.
  const double flops = e.computing.flops_per_step, peak = std::max(e.computing.peak_flops, flops / e.times.step);
  if (flops > 0 && e.computing.peak_flops > 0)
    out +=
        fmt::format("a rank computes {}FLOP per step, {:.1f} % of the {}FLOP/s that its device reaches at best (MFU)\n",
                    format_count(flops), 100 * flops / (e.times.step * peak), format_count(peak));
  return out;
}

std::string line_of(const Trial& t) {
  const Change& c = t.change;
  if (!t.failure.empty()) return fmt::format("  {} -> {}: not tried, {}\n", c.key, c.to, t.failure);
  std::string out = fmt::format("  {:<18} {:>10} -> {:<10} {:>9} ms, baseline {} ms: {:.2f}x", c.key, c.from, c.to,
                                ms_text(t.step), ms_text(t.baseline), t.baseline / t.step);
  if (!c.caution.empty()) out += "; " + c.caution;
  if (!t.is_significant()) out += fmt::format("; noise: faster in only {} of {} rounds", t.faster, t.rounds);
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

// Seconds after start-up.
static double judged_seconds(const BottleneckMetrics& e) {
  return e.run.steps * (e.times.step + e.times.checkpoint + e.times.evaluation);
}

bool too_short_to_judge(const BottleneckMetrics& e) {
  return !e.probed && (e.run.steps < min_judged_steps || judged_seconds(e) < min_judged_seconds);
}

std::string verdict(const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  if (e.times.step <= 0) return "";
  if (too_short_to_judge(e))
    return fmt::format("too short to judge: {:.0f} {}, {:.2g} s of training\n", e.run.steps,
                       e.run.steps == 1 ? "step" : "steps", judged_seconds(e));
  const auto found = findings(e, trials);
  const Bound largest = largest_without_remedy(e);
  const bool leads = leads_with_finding(e, found, largest);
  std::string out = leads ? line_of(found[0]) + "\n" : line_without_finding(e, largest);
  for (std::size_t i = leads ? 1 : 0; i < found.size(); ++i) {
    const auto here = found.begin() + std::ptrdiff_t(i);
    const bool stated = std::any_of(found.begin(), here, [&](const Finding& f) { return f.bound == found[i].bound; });
    out += fmt::format("  {}. {}\n", i + 1, line_of(found[i], !stated));
  }
  for (const Hint& h : hints(e))
    out += fmt::format("  worth a trial: {} ({})\n", h.advice, join_clauses(h.evidence, h.caution));
  if (!e.probed) return out;
  out += probe_lines(e);
  for (const Trial& t : trials) out += line_of(t);
  return out;
}

}  // namespace millrace
