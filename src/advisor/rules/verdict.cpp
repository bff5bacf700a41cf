#include "millrace/advisor/rules/verdict.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

constexpr double least_share = 0.03;    // of the step: below it nothing is tried
constexpr double least_stated = 0.08;   // of the time: below it nothing is said without a trial
constexpr double least_late = 0.25;     // the same, for what no other way of summing spares
constexpr double least_startup = 0.25;  // of the run
constexpr double least_told = 0.05;     // decoding's, of the loader's time

// Milliseconds, of steps that take microseconds too.
std::string ms(double seconds) { return text(seconds < 1e-4 ? "%.4f" : "%.2f", seconds * 1e3); }

std::string measured(const BottleneckMetrics& e, Bound b) {
  const double percent = 100 * e.share(b);
  const char* whole = e.probed ? "step" : "time";
  switch (b) {
    case Bound::input:
      return text("%.0f %% of the %s waits for samples; the loader alone delivers %s samples/s, the step could take %s",
                  percent, whole, format_count(e.loader_rate).c_str(),
                  format_count(e.without_input > 0 ? e.batch / e.without_input : 0).c_str()) +
             (e.decoding >= least_told ? text(" (decoding is %.0f %% of its work, reading %.0f %%)", 100 * e.decoding,
                                              100 - 100 * e.decoding)
                                       : "") +
             (e.slow.rank >= 0 && e.probed && e.slow.input_seconds > 0.5 * (e.step - e.without_input)
                  ? text("; rank %d on %s waits %s ms longer than the others", e.slow.rank, e.slow.host.c_str(),
                         ms(e.slow.input_seconds).c_str())
                  : "");
    case Bound::copy:
      return text("%.0f %% of the %s waits for copies to the device, %s ms of a step", percent, whole,
                  ms(e.copy).c_str()) +
             (e.copy_rate > 0 ? text("; one by itself has %.2f GB/s", e.copy_rate * 1e-9) : "");
    case Bound::sums:
      return text("%.0f %% of the %s waits for sums over ranks (%s ms with them, %s ms without%s)", percent, whole,
                  ms(e.without_input).c_str(), ms(e.without_sums).c_str(),
                  e.recoverable(b) > 0.9 * e.share(b)
                      ? ""
                      : text("; %s ms until the last rank was there", ms(e.late).c_str()).c_str());
    case Bound::imbalance:
      return text("%.0f %% of the %s is for one slow rank, %s ms of a step", percent, whole, ms(e.imbalance).c_str());
    case Bound::checkpoint:
      return text("%.0f %% of the time goes into checkpoints", percent);
    case Bound::evaluation:
      return text("%.0f %% of the time goes into evaluation", percent);
    case Bound::host:
      return text("%.0f %% of the time is the host's between the parts of steps", percent);
    case Bound::startup:
      return text("%.0f %% of the run is its start", percent);
    case Bound::compute:
      break;
  }
  return text("%.0f %% of the %s computes (%s ms)", percent, whole, ms(e.without_sums).c_str());
}

std::string advice(const Rule& rule, const BottleneckMetrics& e, const std::string& to) {
  return cat(rule.key, " ", rule.from(e), " -> ", to);
}

std::string with(const std::string& said, const std::string& more) { return more.empty() ? said : said + "; " + more; }

// Of trials: of several values of a key the smallest change that gives as much, nearly.
void add_tried(std::vector<Finding>& out, const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  for (const Trial& t : trials) {
    if (!t.failure.empty() || !t.is_significant() || t.step <= 0 || t.baseline / t.step < t.change.min_gain) continue;
    const double gain = t.baseline / t.step;
    const auto same = std::find_if(out.begin(), out.end(), [&](const Finding& f) {
      return f.advice.compare(0, t.change.key.size() + 1, t.change.key + " ") == 0;
    });
    Finding finding{t.change.bound,
                    gain,
                    false,
                    false,
                    with(measured(e, t.change.bound), t.change.evidence),
                    cat(t.change.key, " ", t.change.from, " -> ", t.change.to),
                    t.change.caution};
    if (same == out.end())
      out.push_back(std::move(finding));
    else if (gain > 1.05 * same->gain)
      *same = std::move(finding);
  }
}

// By the time that was measured: the first rule against each bound, the others behind "or".
void add_stated(std::vector<Finding>& out, const BottleneckMetrics& e) {
  std::vector<Finding> stated;
  for (const Rule& rule : rules()) {
    if (rule.proof == Rule::Proof::hint || (rule.proof == Rule::Proof::trial && e.probed)) continue;
    if (rule.bound == Bound::compute && !rule.gain) continue;
    if (e.recoverable(rule.bound) < (rule.bound == Bound::startup ? least_startup : least_stated)) continue;
    const Values to = rule.to(e);
    if (to.empty() || to.front() == rule.from(e)) continue;
    const double gain = rule.gain ? rule.gain(e) : 1 / std::max(0.01, 1 - e.recoverable(rule.bound));
    if (gain < rule.min_gain) continue;
    const auto same =
        std::find_if(stated.begin(), stated.end(), [&](const Finding& f) { return f.bound == rule.bound; });
    if (same == stated.end() || rule.gain)
      stated.push_back({rule.bound, gain, !rule.gain || rule.proof == Rule::Proof::trial, !rule.gain,
                        with(measured(e, rule.bound), rule.evidence(e)), advice(rule, e, to.front()), rule.caution});
    else
      same->advice += cat(", or ", advice(rule, e, to.front()));
  }
  out.insert(out.end(), stated.begin(), stated.end());
}

}  // namespace

std::vector<Hint> hints(const BottleneckMetrics& e) {
  std::vector<Hint> out;
  for (const Rule& rule : rules()) {
    const bool computing = rule.bound == Bound::compute;
    // What is wrong with cores or clocks shows as waiting, too.
    const bool always = computing && rule.proof == Rule::Proof::hint;
    if (!always && e.share(rule.bound) < (computing ? 0.5 : least_stated)) continue;
    const bool untried = computing && !rule.gain && rule.proof == Rule::Proof::trial && !e.probed;
    if (!untried && rule.proof != Rule::Proof::hint) continue;
    const Values to = rule.to(e);
    if (to.empty() || to.front() == rule.from(e)) continue;
    const std::string said = advice(rule, e, to.front());
    if (std::any_of(out.begin(), out.end(), [&](const Hint& h) { return h.advice == said; })) continue;
    out.push_back({said, rule.evidence(e), rule.caution});
  }
  return out;
}

namespace {

// What takes most besides computing although nothing was found against it; compute: nothing is worth stating. A single
// checkpoint is none too many, and ranks that are late by turns are so on any machine that does other things, too.
Bound unmended(const BottleneckMetrics& e) {
  Bound largest = Bound::compute;
  const auto states = [&](Bound b) {
    if (b == Bound::checkpoint && e.checkpoints < 2) return false;
    return e.recoverable(b) >= least_stated || e.share(b) >= least_late;
  };
  for (const Bound b : {Bound::sums, Bound::input, Bound::copy, Bound::checkpoint})
    if (states(b) && (largest == Bound::compute || e.share(b) > e.share(largest))) largest = b;
  return largest;
}

// again: after another finding against the same bound, whose evidence stands there.
std::string line_of(const Finding& f, bool again = false) {
  return cat(again ? "" : cat(name_of(f.bound), ": ", f.evidence, ". "), f.advice,
             text(f.at_most ? ": at most %.2fx%s" : " gives %.2fx%s", f.gain, f.of_all ? ", without any of it" : ""));
}

}  // namespace

const char* name_of(Bound b) {
  switch (b) {
    case Bound::input:
      return "input-bound";
    case Bound::copy:
      return "copy-bound";
    case Bound::sums:
      return "communication-bound";
    case Bound::imbalance:
      return "imbalanced";
    case Bound::checkpoint:
      return "checkpoint-bound";
    case Bound::evaluation:
      return "evaluation-bound";
    case Bound::host:
      return "host-bound";
    case Bound::startup:
      return "start-up-bound";
    case Bound::compute:
      break;
  }
  return "compute-bound";
}

double BottleneckMetrics::share(Bound b) const {
  const double all = step + checkpoint + evaluation;
  if (b == Bound::startup) return wall > 0 ? startup / wall : 0;
  if (all <= 0) return 0;
  double left = 1;
  const auto take = [&left](double part) { return part = std::clamp(part, 0.0, left), left -= part, part; };
  const double parts[] = {take((step - without_input) / all),
                          take(copy / all),
                          take(ranks > 1 ? (without_input - without_sums) / all : 0),
                          take(imbalance / all),
                          take(checkpoint / all),
                          take(evaluation / all),
                          take(host / all)};
  return b == Bound::compute ? left : parts[int(b)];
}

double BottleneckMetrics::recoverable(Bound b) const {
  return b == Bound::sums ? std::max(0.0, share(b) - late / (step + checkpoint + evaluation)) : share(b);
}

Bound largest_bound(const BottleneckMetrics& e) {
  Bound largest = Bound::compute;
  for (const Bound b :
       {Bound::input, Bound::copy, Bound::sums, Bound::imbalance, Bound::checkpoint, Bound::evaluation, Bound::host})
    if (e.share(b) >= least_stated && (largest == Bound::compute || e.share(b) > e.share(largest))) largest = b;
  return largest;
}

std::vector<Change> changes_to_try(const BottleneckMetrics& e) {
  std::vector<Change> out;
  for (const Rule& rule : rules()) {
    if (rule.proof != Rule::Proof::trial || e.share(rule.bound) < least_share) continue;
    for (const std::string& to : rule.to(e))
      if (to != rule.from(e))
        out.push_back({rule.bound, rule.key, rule.from(e), to, rule.caution, rule.min_gain, rule.evidence(e)});
  }
  return out;
}

std::vector<Finding> findings(const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  std::vector<Finding> out;
  add_tried(out, e, trials);
  double tried[bound_count] = {};
  // What leaves the results as they are goes first where it gives as much, nearly.
  const auto weight = [&tried](const Finding& f) {
    const double own = f.gain * (f.caution.empty() ? 1.02 : 1), known = tried[int(f.bound)];
    return f.of_all && known > 0 ? std::min(own, 0.99 * known) : own;  // a bound is no promise
  };
  for (const Finding& f : out) tried[int(f.bound)] = std::max(tried[int(f.bound)], weight(f));
  const auto stated = std::ptrdiff_t(out.size());
  add_stated(out, e);
  for (auto f = out.begin() + stated; f != out.end(); ++f)
    if (!f->of_all) tried[int(f->bound)] = std::max(tried[int(f->bound)], weight(*f));
  std::stable_sort(out.begin(), out.end(), [&](const Finding& a, const Finding& b) { return weight(a) > weight(b); });
  return out;
}

std::string verdict(const BottleneckMetrics& e, const std::vector<Trial>& trials) {
  if (e.step <= 0) return "";
  const auto found = findings(e, trials);
  const Bound largest = unmended(e);
  std::string out;
  // What bounds the run is said first, though nothing be known against it but against less.
  const bool known =
      !found.empty() &&
      (e.probed || largest == Bound::compute || e.share(largest) <= e.share(found[0].bound) ||
       std::any_of(found.begin(), found.end(), [largest](const Finding& f) { return f.bound == largest; }));
  if (known)
    out = line_of(found[0]) + "\n";
  else if (largest != Bound::compute)
    out = cat(name_of(largest), ": ", measured(e, largest),
              e.probed ? ". no change that was tried helps\n" : ". no key is known to help\n");
  else if (!e.misplaced.empty())
    out = cat(name_of(Bound::compute), ": ", measured(e, Bound::compute), "; ", e.misplaced, "\n");
  else if (e.contended())
    out = cat(name_of(Bound::compute), ": ", measured(e, Bound::compute),
              text("; other work has %.1f of a rank's %.0f cores. no key is known to help\n",
                   e.taken.others + e.taken.stolen, e.taken.of));
  else
    out = cat("nothing worth changing: ", measured(e, Bound::compute),
              e.share(Bound::sums) < least_stated ? "" : "; " + measured(e, Bound::sums), "\n");
  for (std::size_t i = known ? 1 : 0; i < found.size(); ++i) {
    const auto same = [&](const Finding& f) { return f.bound == found[i].bound; };
    const auto here = found.begin() + std::ptrdiff_t(i);
    out += cat("  ", i + 1, ". ", line_of(found[i], std::any_of(found.begin(), here, same)), "\n");
  }
  for (const Hint& h : hints(e)) out += cat("  worth a trial: ", h.advice, " (", with(h.evidence, h.caution), ")\n");
  if (!e.probed) return out;
  out += cat("\nmeasured, ms a step: ", ms(e.step), " as configured, ", ms(e.without_input),
             text(" with samples there at once (%.2fx at most)", e.step / e.without_input));
  if (e.ranks > 1)
    out += cat(", ", ms(e.without_sums), " without sums, too", text(" (%.2fx)", e.step / e.without_sums));
  if (e.without_optimizer > 0) out += cat(", ", ms(e.without_optimizer), " without the optimizer, too");
  out += "\n";
  if (e.sum_alone > 0)
    out += text("%s of gradients are summed in %s ms by themselves, %.2f GB/s on the bus\n",
                format_bytes(std::uint64_t(e.gradient_bytes)).c_str(), ms(e.sum_alone).c_str(),
                2 * (e.ranks - 1.0) / e.ranks * e.gradient_bytes / e.sum_alone * 1e-9);
  if (e.flops > 0 && e.peak_flops > 0)
    out += text("a rank computes %sFLOP a step, %.1f %% of the %sFLOP/s that its device can do (MFU)\n",
                format_count(e.flops).c_str(), 100 * e.flops / (e.step * e.peak_flops),
                format_count(e.peak_flops).c_str());
  for (const Trial& t : trials)
    out += t.failure.empty()
               ? text("  %-18s %10s -> %-10s %9s ms beside %s: %.2fx%s%s%s\n", t.change.key.c_str(),
                      t.change.from.c_str(), t.change.to.c_str(), ms(t.step).c_str(), ms(t.baseline).c_str(),
                      t.baseline / t.step, t.change.caution.empty() ? "" : "; ", t.change.caution.c_str(),
                      t.is_significant() ? "" : text("; noise: faster in %d of %d turns", t.faster, t.turns).c_str())
               : cat("  ", t.change.key, " -> ", t.change.to, ": not tried, ", t.failure, "\n");
  return out;
}

}  // namespace millrace
