// Rules against checkpoints, evaluation, the host's own work and start-up.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"
#include "advisor/rules/thresholds.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

// Checkpoints that checkpoint.every triggers. The best one so far and the last are written in any case.
int regular_checkpoints(const BottleneckMetrics& e) { return e.run.checkpoints - e.run.needed_checkpoints; }

double share_of_regular_checkpoints(const BottleneckMetrics& e) {
  return e.share(Bound::checkpoint) * regular_checkpoints(e) / std::max(1, e.run.checkpoints);
}

// By how much to stretch checkpoint.every: until regular checkpoints take 1 % of the time, or none is left.
int stretch_factor(const BottleneckMetrics& e) {
  return std::min(regular_checkpoints(e) + 1, int(std::ceil(100 * share_of_regular_checkpoints(e))));
}

Values rarer_checkpoints(const BottleneckMetrics& e) {
  const std::string& every = e.config.training.checkpoint_every;
  const auto unit = every.find_first_not_of("0123456789.");
  const std::string number = every.substr(0, unit);
  const int factor = stretch_factor(e);
  if (e.run.checkpoints < 2 || factor < 2 || number.empty()) return {};
  const bool several_units = unit != std::string::npos && every.find_first_of("0123456789", unit) != std::string::npos;
  if (several_units) return {fmt::format("{:.0f}s", parse_seconds(every) * factor)};  // 1m30s
  const std::string value = fmt::format("{:.6g}", std::stod(number) * factor);
  return {value + (unit == std::string::npos ? "" : every.substr(unit))};
}

double gain_of_rarer_checkpoints(const BottleneckMetrics& e) {
  const int all = regular_checkpoints(e), left = all / std::max(1, stretch_factor(e));
  return 1 / (1 - share_of_regular_checkpoints(e) * (1 - double(left) / std::max(1, all)));
}

Rule write_checkpoints_less_often() {
  return {.bound = Bound::checkpoint,
          .key = "checkpoint.every",
          .from = [](const BottleneckMetrics& e) { return e.config.training.checkpoint_every; },
          .to = rarer_checkpoints,
          .evidence =
              [](const BottleneckMetrics& e) {
                const auto& run = e.run;
                return fmt::format("{} checkpoints of {:.1f} ms each", run.checkpoints,
                                   ms(e.times.checkpoint * run.steps / run.checkpoints)) +
                       (run.needed_checkpoints > 1
                            ? fmt::format(", {} of them needed: the best so far or the last", run.needed_checkpoints)
                            : "");
              },
          .proof = Rule::Proof::time,
          .gain = gain_of_rarer_checkpoints};
}

// A single evaluation is never too many, nor are several short ones.
Rule evaluate_after_training() {
  return {
      .bound = Bound::evaluation,
      .key = "train.evaluate",
      .from = [](const BottleneckMetrics&) { return std::string("on"); },
      .to =
          [](const BottleneckMetrics& e) {
            const bool applies = e.run.evaluations > 1 && !e.config.training.needs_evaluations &&
                                 e.share(Bound::evaluation) >= min_stated_evaluation;
            return applies ? Values{"off"} : Values{};
          },
      .evidence =
          [](const BottleneckMetrics& e) { return fmt::format("{:.2f} ms per training step", ms(e.times.evaluation)); },
      .proof = Rule::Proof::time,
      .caution = "no validation metrics during training; millrace eval computes them afterwards"};
}

Rule less_host_work() {
  Rule rule = larger_global_batch(Bound::host, Rule::Proof::time);
  rule.evidence = [](const BottleneckMetrics& e) {
    return fmt::format("{:.2f} ms of each step are spent outside of the device", ms(e.times.host));
  };
  rule.caution = makes_larger_steps;
  return rule;
}

Rule fewer_launches() {
  return {.bound = Bound::startup,
          .key = "train.epochs",
          .from = [](const BottleneckMetrics&) { return std::string("one launch"); },
          .to =
              [](const BottleneckMetrics& e) {
                return e.run.wall_seconds > 60 ? Values{"more of the run per launch"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("{:.1f} s of {:.1f} s pass before the first step", e.run.startup_seconds,
                                   e.run.wall_seconds);
              },
          .proof = Rule::Proof::time};
}

}  // namespace

std::vector<Rule> other_rules() {
  return {write_checkpoints_less_often(), evaluate_after_training(), less_host_work(), fewer_launches()};
}

}  // namespace millrace
