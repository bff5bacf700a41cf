// The report of a search: the gain of all changes together, then the lines to paste, then all trials.
#include <algorithm>
#include <cmath>

#include "advisor/rules/rule_text.hpp"
#include "millrace/advisor/rules/tuning.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"

namespace millrace {
namespace {

std::vector<double> gains_of(const TuneOutcome& out) {
  return TuneTrial{.changed = out.tuned, .baseline = out.baseline}.gains();
}

std::string measured_gain(const TuneOutcome& out) {
  const auto gains = gains_of(out);
  const auto [least, most] = std::minmax_element(gains.begin(), gains.end());
  const bool other_batch = std::any_of(out.changes.begin(), out.changes.end(),
                                       [](const auto& setting) { return setting.first == "train.global_batch"; });
  return text(
      "%.2fx, measured with all changes together: %.2f -> %.2f ms %s (medians of %zu alternating rounds, %.2fx to "
      "%.2fx)",
      median(gains), ms(median(out.baseline)), ms(median(out.tuned)),
      other_batch ? "for the samples of an original step" : "per step", gains.size(), *least, *most);
}

std::string line_of(const TuneTrial& t) {
  const std::string change = text("  %-18s %10s -> %-10s ", t.key.c_str(), t.from.c_str(), t.to.c_str());
  if (!t.failure.empty()) return cat(change, "failed: ", t.failure, "\n");
  const auto gains = t.gains();
  if (gains.empty()) return cat(change, "stopped\n");
  return cat(change,
             text("%9.2f ms, baseline %9.2f: %.2fx in %zu round%s%s\n", ms(median(t.changed)), ms(median(t.baseline)),
                  median(gains), gains.size(), plural(double(gains.size())), t.kept ? ", kept" : ""));
}

std::string head_of(const TuneOutcome& out) {
  const std::string noise = text("%.0f %%", std::ceil(100 * out.noise));
  if (!out.start_failure.empty())
    return cat("the configuration does not run: ", out.start_failure, "\n",
               out.tuned.empty() ? std::string("this one does:\n")
                                 : text("this one takes %.2f ms per step:\n", ms(median(out.tuned))));
  if (out.changes.empty())
    return cat("nothing worth changing: none of ", out.trials.size(), " trials gained ", text("%.2fx", min_gain),
               " beyond the noise (", noise, " of a measurement)\n");
  if (out.tuned.empty()) return "found so far, not confirmed with all changes together:\n";
  if (!out.is_significant())
    return cat("nothing worth changing: all changes together do not gain more than the noise (", noise,
               " of a measurement), although single trials did. ", measured_gain(out), "\n");
  return cat(measured_gain(out), ", with\n");
}

}  // namespace

bool TuneOutcome::is_significant() const {
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
      "train.global_batch %lld -> %lld: %.3g times as many samples per step and fewer steps per "
      "epoch, which changes the training. ",
      (long long)f.from, (long long)f.to, factor);
  if (f.rate_batch > 0)
    return cat(steps, text("optim.lr_batch = %.6g is set, so the learning rate scales with the batch: %.4g -> %.4g",
                           f.rate_batch, f.rate * double(f.from) / f.rate_batch, f.rate * double(f.to) / f.rate_batch));
  const bool adam = f.optimizer == "adamw" || f.optimizer == "lamb";
  return cat(
      steps,
      text("optim.lr stays %.4g; the linear scaling rule (Goyal et al. 2017) gives %.4g: "
           "set optim.lr_batch = %lld for it",
           f.rate, f.rate * factor, (long long)f.from),
      adam ? text(" (for Adam, the square-root rule is common too: optim.lr = %.4g)", f.rate * std::sqrt(factor)) : "");
}

std::string tuning_report(const TuneOutcome& out) {
  std::string text_out = head_of(out);
  if (out.is_significant()) {
    text_out += cat("\n", config_snippet(out.changes, out.consequences), "\n");
    text_out += "save these lines as a file and pass it after your configuration: -c FILE -c TUNED\n";
  }
  const BottleneckMetrics& e = out.before;
  if (e.times.step > 0) {
    text_out += text("\nmeasured, ms per step: %.2f %s, %.2f with samples already in memory", ms(e.times.step),
                     out.start_failure.empty() ? "as configured" : "with the largest micro-batch that fits",
                     ms(e.without.input));
    if (e.config.machine.ranks > 1) text_out += text(", %.2f also without all-reduces", ms(e.without.communication));
    text_out += text("; noise of one measurement %.1f %%\n", 100 * out.noise);
  }
  if (!out.trials.empty()) text_out += "trials, each against the best configuration so far, medians:\n";
  for (const TuneTrial& t : out.trials) text_out += line_of(t);
  for (const std::string& what : out.untried) text_out += cat("  not tried: ", what, "\n");
  if (!out.stopped.empty()) text_out += cat("the search ended early: ", out.stopped, "\n");
  return text_out;
}

}  // namespace millrace
