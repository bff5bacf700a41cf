// What tune says: the gain of the whole first, then the lines to be pasted, then all trials.
#include <algorithm>
#include <cmath>

#include "millrace/advisor/rules/tuning.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

double ms(double seconds) { return seconds * 1e3; }

std::vector<double> gains_of(const TuneOutcome& out) {
  return TuneTrial{"", "", "", out.tuned, out.baseline, false, ""}.gains();
}

std::string measured_gain(const TuneOutcome& out) {
  const auto gains = gains_of(out);
  const auto [least, most] = std::minmax_element(gains.begin(), gains.end());
  const bool other_batch = std::any_of(out.changes.begin(), out.changes.end(),
                                       [](const auto& setting) { return setting.first == "train.global_batch"; });
  return text("%.2fx, measured as a whole: %.2f -> %.2f ms %s (medians of %zu turns side by side, %.2fx to %.2fx)",
              median(gains), ms(median(out.baseline)), ms(median(out.tuned)),
              other_batch ? "for the samples of a step as it is" : "a step", gains.size(), *least, *most);
}

std::string line_of(const TuneTrial& t) {
  const std::string change = text("  %-18s %10s -> %-10s ", t.key.c_str(), t.from.c_str(), t.to.c_str());
  if (!t.failure.empty()) return cat(change, "failed: ", t.failure, "\n");
  const auto gains = t.gains();
  if (gains.empty()) return cat(change, "stopped\n");
  return cat(change,
             text("%9.2f ms beside %9.2f: %.2fx in %zu turn%s%s\n", ms(median(t.changed)), ms(median(t.baseline)),
                  median(gains), gains.size(), gains.size() == 1 ? "" : "s", t.kept ? ", kept" : ""));
}

std::string head_of(const TuneOutcome& out) {
  const std::string noise = text("%.0f %%", std::ceil(100 * out.noise));
  if (!out.start_failure.empty())
    return cat(
        "the configuration as it is does not run: ", out.start_failure, "\n",
        out.tuned.empty() ? std::string("this does:\n") : text("this takes %.2f ms a step:\n", ms(median(out.tuned))));
  if (out.changes.empty())
    return cat("nothing worth changing: none of ", out.trials.size(), " trials gained ", text("%.2fx", min_gain),
               " beyond the noise (", noise, " of a measurement)\n");
  if (out.tuned.empty()) return "found so far, not confirmed as a whole:\n";
  if (!out.stands())
    return cat(
        "nothing worth changing: what trials gained one by one is not there as a whole, or not beyond the noise (",
        noise, " of a measurement). ", measured_gain(out), "\n");
  return cat(measured_gain(out), ", by\n");
}

}  // namespace

bool TuneOutcome::stands() const {
  if (changes.empty()) return false;
  return tuned.empty() || !start_failure.empty() ||
         decide_trial(gains_of(*this), noise, int(tuned.size())) == TrialDecision::keep;
}

std::string config_snippet(const Settings& settings, const std::vector<std::string>& comments) {
  std::string out;
  for (const std::string& comment : comments) out += cat("# ", comment, "\n");
  std::vector<std::string> sections;
  for (const auto& [key, value] : settings) {
    const std::string section = key.substr(0, key.find('.'));
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) sections.push_back(section);
  }
  for (const std::string& section : sections) {
    out += cat("[", section, "]\n");
    for (const auto& [key, value] : settings)
      if (key.starts_with(section + ".")) out += cat(key.substr(section.size() + 1), " = ", value, "\n");
  }
  return out;
}

std::string learning_rate_note(const LearningRateChange& f) {
  const double factor = double(f.to) / double(f.from);
  const std::string steps = text(
      "train.global_batch %lld -> %lld: %.3g times as many samples a step, so fewer steps an "
      "epoch: another training. ",
      (long long)f.from, (long long)f.to, factor);
  if (f.rate_batch > 0)
    return cat(steps, text("optim.lr_batch = %.6g is set: the learning rate goes along with it, %.4g -> %.4g",
                           f.rate_batch, f.rate * double(f.from) / f.rate_batch, f.rate * double(f.to) / f.rate_batch));
  const bool adam = f.optimizer == "adamw" || f.optimizer == "lamb";
  return cat(steps,
             text("optim.lr stays %.4g here; the linear scaling rule (Goyal et al. 2017) would make it %.4g: "
                  "optim.lr_batch = %lld does that",
                  f.rate, f.rate * factor, (long long)f.from),
             adam ? text(" (for Adam the square root is usual too: optim.lr = %.4g)", f.rate * std::sqrt(factor)) : "");
}

std::string tuning_report(const TuneOutcome& out) {
  std::string text_out = head_of(out);
  if (out.stands()) {
    text_out += cat("\n", config_snippet(out.changes, out.consequences), "\n");
    text_out += "saved as a file of its own it wins over the configuration before it: -c FILE -c TUNED\n";
  }
  const BottleneckMetrics& e = out.before;
  if (e.step > 0) {
    text_out += text("\nmeasured, ms a step: %.2f %s, %.2f with samples there at once", ms(e.step),
                     out.start_failure.empty() ? "as configured" : "with the largest micro-batch that fits",
                     ms(e.without_input));
    if (e.ranks > 1) text_out += text(", %.2f without sums, too", ms(e.without_sums));
    text_out += text("; noise of a measurement %.1f %%\n", 100 * out.noise);
  }
  if (!out.trials.empty()) text_out += "trials, each beside the best so far, medians:\n";
  for (const TuneTrial& t : out.trials) text_out += line_of(t);
  for (const std::string& what : out.untried) text_out += cat("  not tried: ", what, "\n");
  if (!out.stopped.empty()) text_out += cat("the search ended early: ", out.stopped, "\n");
  return text_out;
}

}  // namespace millrace
