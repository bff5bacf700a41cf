// Tuning: which keys to search, which value to try next, what counts as a gain, and the report. All functions are pure:
// measurements in, decisions out. The search is greedy: one key after the other, beginning with the key whose bound
// takes most of the step. It does not find changes that help only together.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/advisor/rules/rules.hpp"

namespace millrace {

using Settings = std::vector<std::pair<std::string, std::string>>;  // keys with their values, each key once

// One key of the search and its values.
struct SearchAxis {
  Bound bound = Bound::compute;  // what the key acts against
  std::string key;
  Values values = {};           // candidates, including the present value
  int now = 0;                  // index of the present value
  std::vector<int> first = {};  // indices to be tried before all others
  bool ordered_values = true;   // the neighbours of the best value are tried next; false: only those in `first` are
  int lowest = 0;               // the first index that has neighbours; values below it, like "auto", have none
  std::vector<Settings> coupled_settings = {};  // what else changes with each value; empty: nothing
};

// The limits of the search.
struct TuneLimits {
  std::int64_t max_rows = 0;          // of a micro-batch that fits into memory
  std::uint64_t ring_bytes = 0;       // host memory that batches read ahead may take
  std::uint64_t gradient_bytes = 0;   // of the whole gradient as float32
  int fusion = 0, max_fusion = 0;     // the level in use (-1: auto, which is none of them) and the highest that exists
  std::int64_t max_global_batch = 0;  // the largest global batch to try; 0: the global batch stays
};
// In the order of keys within a bound. Keys without a second value are left out.
std::vector<SearchAxis> tune_axes(const BottleneckMetrics&, const TuneLimits&);

// A bound that takes a smaller share of the step is not searched: nothing against it could gain more.
inline constexpr double min_tuned_share = 0.03;
// The axis whose bound takes most of the step; the first of several. No value if no bound takes min_tuned_share.
std::optional<std::size_t> next_axis(const BottleneckMetrics&, std::span<const SearchAxis>);

struct TriedValue {
  int value = 0;      // index in SearchAxis::values
  bool kept = false;  // it was faster than the best value before
};
// The value to try next: those in `first`, then the neighbours of the best value so far, the larger one first. `tried`
// is in the order of the trials.
std::optional<int> next_value(const SearchAxis&, std::span<const TriedValue> tried);

// Noise: the standard deviation of the logarithm of one measurement. It is estimated from the differences of successive
// measurements of the same configuration, by their median, so that a few slow moments do not count. At least 0.01.
double noise_of(const std::vector<double>& differences);
void add_differences(std::vector<double>& differences, std::span<const double> successive);

enum class TrialDecision { more, keep, drop };
inline constexpr double min_gain = 1.03;
inline constexpr int max_rounds = 5;
// Decides after some rounds; each measures the change and the baseline. gains: baseline time over changed time.
// keep: at least three rounds, a median gain above min_gain by two standard errors, and at most one round slower. In
// the last round it suffices to exceed min_gain and two standard errors separately. drop: even with two standard errors
// added, the gain stays below min_gain.
TrialDecision decide_trial(const std::vector<double>& gains, double noise, int rounds = max_rounds);

struct TuneTrial {
  std::string key = {}, from = {}, to = {};
  std::vector<double> changed = {}, baseline = {};  // seconds per step of each round, for the same number of samples
  bool kept = false;
  std::string failure = {};  // why it did not run; empty: it did
  std::vector<double> gains() const;
};

// A new global batch and the learning rate. Nothing is changed; the note says what to do.
struct LearningRateChange {
  std::string optimizer;
  double rate = 0, rate_batch = 0;  // optim.lr, optim.lr_batch
  std::int64_t from = 0, to = 0;    // global batch
};
std::string learning_rate_note(const LearningRateChange&);

// The result of a search.
struct TuneOutcome {
  BottleneckMetrics before;
  std::vector<TuneTrial> trials;
  std::vector<std::string> untried;     // "comm.bucket_size: a single rank does not communicate"
  std::string start_failure;            // why the original configuration does not run; empty: it does
  Settings changes;                     // from the original configuration to the best that was found
  std::vector<double> tuned, baseline;  // seconds per step with all changes and without; empty: not confirmed
  double noise = 0;                     // as noise_of
  std::string stopped;                  // why the search ended early; empty: it did not
  std::vector<std::string> consequences;
  // Do all changes together gain more than the noise? True if there is no baseline to compare with.
  bool is_significant() const;
};
// The settings as INI text, by section, below the comments.
std::string config_snippet(const Settings&, const std::vector<std::string>& comments = {});
std::string tuning_report(const TuneOutcome&);

}  // namespace millrace
