// The report of a search: the gain of all changes together, then the lines to paste, then all trials.
#include <fmt/core.h>

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
  return fmt::format(
      "{:.2f}x, measured with all changes together: {:.2f} -> {:.2f} ms {} (medians of {} alternating rounds, {:.2f}x "
      "to {:.2f}x)",
      median(gains), ms(median(out.baseline)), ms(median(out.tuned)),
      other_batch ? "for the samples of an original step" : "per step", gains.size(), *least, *most);
}

std::string line_of(const TuneTrial& t) {
  const std::string change = fmt::format("  {:<18} {:>10} -> {:<10} ", t.key, t.from, t.to);
  if (!t.failure.empty()) return fmt::format("{}failed: {}\n", change, t.failure);
  const auto gains = t.gains();
  if (gains.empty()) return fmt::format("{}stopped\n", change);
  return fmt::format("{}{}", change,
                     fmt::format("{:9.2f} ms, baseline {:9.2f}: {:.2f}x in {} round{}{}\n", ms(median(t.changed)),
                                 ms(median(t.baseline)), median(gains), gains.size(), plural(double(gains.size())),
                                 t.kept ? ", kept" : ""));
}

std::string head_of(const TuneOutcome& out) {
  const std::string noise = fmt::format("{:.0f} %", std::ceil(100 * out.noise));
  if (!out.start_failure.empty())
    return fmt::format("the configuration does not run: {}\n{}", out.start_failure,
                       out.tuned.empty() ? std::string("this one does:\n")
                                         : fmt::format("this one takes {:.2f} ms per step:\n", ms(median(out.tuned))));
  if (out.changes.empty())
    return fmt::format("nothing worth changing: none of {} trials gained {} beyond the noise ({} of a measurement)\n",
                       out.trials.size(), fmt::format("{:.2f}x", min_gain), noise);
  if (out.tuned.empty()) return "found so far, not confirmed with all changes together:\n";
  if (!out.is_significant())
    return fmt::format(
        "nothing worth changing: all changes together do not gain more than the noise ({} of a measurement), although "
        "single trials did. {}\n",
        noise, measured_gain(out));
  return fmt::format("{}, with\n", measured_gain(out));
}

}  // namespace

bool TuneOutcome::is_significant() const {
  if (changes.empty()) return false;
  return tuned.empty() || !start_failure.empty() ||
         decide_trial(gains_of(*this), noise, int(tuned.size())) == TrialDecision::keep;
}

std::string config_snippet(const Settings& settings, const std::vector<std::string>& comments) {
  std::string out;
  for (const std::string& comment : comments) out += fmt::format("# {}\n", comment);
  std::vector<std::string> sections;
  for (const auto& [key, value] : settings) {
    const std::string section = key.substr(0, key.find('.'));
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) sections.push_back(section);
  }
  for (const std::string& section : sections) {
    out += fmt::format("[{}]\n", section);
    for (const auto& [key, value] : settings)
      if (key.starts_with(section + ".")) out += fmt::format("{} = {}\n", key.substr(section.size() + 1), value);
  }
  return out;
}

std::string learning_rate_note(const LearningRateChange& f) {
  const double factor = double(f.to) / double(f.from);
  const std::string steps = fmt::format(
      "train.global_batch {} -> {}: {:.3g} times as many samples per step and fewer steps per epoch, which changes the "
      "training. ",
      f.from, f.to, factor);
  if (f.rate_batch > 0)
    return fmt::format(
        "{}{}", steps,
        fmt::format("optim.lr_batch = {:.6g} is set, so the learning rate scales with the batch: {:.4g} -> {:.4g}",
                    f.rate_batch, f.rate * double(f.from) / f.rate_batch, f.rate * double(f.to) / f.rate_batch));
  const bool adam = f.optimizer == "adamw" || f.optimizer == "lamb" || f.optimizer == "muon";
  return fmt::format("{}{}{}", steps,
                     fmt::format("optim.lr stays {:.4g}; the linear scaling rule (Goyal et al. 2017) gives {:.4g}: set "
                                 "optim.lr_batch = {} for it",
                                 f.rate, f.rate * factor, f.from),
                     adam ? fmt::format(" (for Adam, the square-root rule is common too: optim.lr = {:.4g})",
                                        f.rate * std::sqrt(factor))
                          : "");
}

std::string tuning_report(const TuneOutcome& out) {
  std::string text_out = head_of(out);
  if (out.is_significant()) {
    text_out += fmt::format("\n{}\n", config_snippet(out.changes, out.consequences));
    text_out += "save these lines as a file and pass it after your configuration: -c FILE -c TUNED\n";
  }
  const BottleneckMetrics& e = out.before;
  if (e.times.step > 0) {
    text_out += fmt::format(
        "\nmeasured, ms per step: {:.2f} {}, {:.2f} with samples already in memory", ms(e.times.step),
        out.start_failure.empty() ? "as configured" : "with the largest micro-batch that fits", ms(e.without.input));
    if (e.config.machine.ranks > 1)
      text_out += fmt::format(", {:.2f} also without all-reduces", ms(e.without.communication));
    text_out += fmt::format("; noise of one measurement {:.1f} %\n", 100 * out.noise);
  }
  if (!out.trials.empty()) text_out += "trials, each against the best configuration so far, medians:\n";
  for (const TuneTrial& t : out.trials) text_out += line_of(t);
  for (const std::string& what : out.untried) text_out += fmt::format("  not tried: {}\n", what);
  if (!out.stopped.empty()) text_out += fmt::format("the search ended early: {}\n", out.stopped);
  return text_out;
}

}  // namespace millrace
