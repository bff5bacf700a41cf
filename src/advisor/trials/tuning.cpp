#include "millrace/advisor/trials/tuning.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/advisor/trials/measure.hpp"
#include "millrace/base/host_memory.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/median.hpp"
#include "millrace/config/keys.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_batch_growth = 16;  // times the original global batch
constexpr std::size_t min_confirming_rounds = 5, max_confirming_rounds = 9;
constexpr double hopeless = 2;  // times slower than the baseline: two steps suffice to drop the change

void set(Settings& settings, const std::string& key, const std::string& value) {
  for (auto& [name, present] : settings)
    if (name == key) {
      present = value;
      return;
    }
  settings.emplace_back(key, value);
}

Settings merged(Settings settings, const Settings& more) {
  for (const auto& [key, value] : more) set(settings, key, value);
  return settings;
}

// The configuration with these settings, by the same lines that are printed in the end.
RunConfig with(World& world, ParsedArguments parsed, const Settings& settings) {
  for (const auto& [key, value] : settings)
    std::erase_if(parsed.keys, [&, name = key](const Override& o) { return o.key == name; });
  return load_config(world, parsed, {{"tuned", config_snippet(settings)}});
}

class Tuning {
 public:
  Tuning(World& world, const ParsedArguments& parsed, const TuneOptions& options)
      : world_(world), parsed_(parsed), options_(options), meter_(world, options.seconds) {}

  TuneOutcome run() {
    original_ = best_ = load_config(world_, parsed_);
    find_memory_limits();
    out_.before = measure_bounds(3);
    search(out_.before);
    confirm();
    out_.noise = noise();
    note_consequences();
    return std::move(out_);
  }

 private:
  double noise() const { return noise_of(differences_); }

  // Must the search end? The same on all ranks. Keeps the reason.
  bool over() {
    if (!out_.stopped.empty()) return true;
    if (stop_requested_on_any_rank(world_))
      out_.stopped = "asked to stop";
    else if (from_rank_0(world_, watch_.seconds()) > options_.budget)
      out_.stopped = fmt::format("its time is up (--budget {:g}s)", options_.budget);
    return !out_.stopped.empty();
  }

  void find_memory_limits() {
    const MemoryProbe now = probe_memory(world_, original_);
    limits_.max_rows = now.max_micro_batch;
    if (options_.free_batch) {
      RunConfig widest = original_;
      widest.train.global_batch *= max_batch_growth;
      widest.train.micro_batch = 1;  // fits; the probe then looks for the largest that does
      limits_.max_rows = probe_memory(world_, widest).max_micro_batch;
      limits_.max_global_batch = widest.train.global_batch;
    }
    if (now.problem.empty()) return;
    out_.start_failure = now.problem;
    if (now.max_micro_batch < 1 || options_.keep.count("train.micro_batch")) fail(Exit::config, "{}", now.problem);
    take({{"train.micro_batch", std::to_string(now.max_micro_batch)}});
  }

  void take(const Settings& settings) {
    out_.changes = merged(out_.changes, settings);
    best_ = with(world_, parsed_, out_.changes);
  }

  BottleneckMetrics measure_bounds(int rounds) {
    const AblationTimes ablations = measure_ablations(world_, meter_, best_, rounds);
    for (const auto* list : {&ablations.full, &ablations.no_input, &ablations.no_all_reduce})
      add_differences(differences_, *list);
    const BottleneckMetrics e = probed_metrics(world_, ablations);
    limits_.gradient_bytes = ablations.probe.gradient_bytes;
    limits_.fusion = ablations.probe.fusion;
    limits_.max_fusion = ablations.probe.max_fusion;
    has_batch_statistics_ = ablations.probe.batch_statistics;
    double ring[] = {double(host_memory().available) / 8 / world_.local_size()};
    world_.all_reduce(ring, World::Reduce::min);
    limits_.ring_bytes = std::uint64_t(ring[0]);
    return e;
  }

  std::vector<SearchAxis> axes(const BottleneckMetrics& e) const {
    std::vector<SearchAxis> all = tune_axes(e, limits_);
    std::erase_if(all, [&](const SearchAxis& a) { return options_.keep.count(a.key) || searched_.count(a.key); });
    for (SearchAxis& axis : all)
      for (Settings& also : axis.coupled_settings)
        std::erase_if(also, [&](const auto& setting) { return options_.keep.count(setting.first) > 0; });
    return all;
  }

  void search(BottleneckMetrics e) {
    for (;;) {
      const std::vector<SearchAxis> left = axes(e);
      const auto next = next_axis(e, left);
      if (!next || over()) {
        note_untried(e, left);
        return;
      }
      searched_.insert(left[*next].key);
      if (search_axis(left[*next])) e = measure_bounds(2);
    }
  }

  // Tries values of one key. Returns whether one was kept.
  bool search_axis(const SearchAxis& axis) {
    std::vector<TriedValue> tried;
    int best = axis.now;
    while (const auto value = next_value(axis, tried)) {
      if (over()) break;
      Settings settings{{axis.key, axis.values[std::size_t(*value)]}};
      if (!axis.coupled_settings.empty()) settings = merged(settings, axis.coupled_settings[std::size_t(*value)]);
      TuneTrial trial{.key = axis.key, .from = axis.values[std::size_t(best)], .to = settings.front().second};
      log::info(fmt::format("trying {} = {}", trial.key, trial.to));
      measure(trial, settings);
      tried.push_back({*value, trial.kept});
      if (trial.kept) {
        take(settings);
        best = *value;
      }
      add_differences(differences_, trial.baseline);
      out_.trials.push_back(std::move(trial));
    }
    return best != axis.now;
  }

  void measure(TuneTrial& trial, const Settings& settings) {
    try {
      const RunConfig other = with(world_, parsed_, merged(out_.changes, settings));
      while (decide_trial(trial.gains(), noise()) == TrialDecision::more && !stop_requested_on_any_rank(world_))
        measure_round(best_, other, trial.baseline, trial.changed);
      trial.kept = decide_trial(trial.gains(), noise()) == TrialDecision::keep;
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      trial.failure = error.what();
    }
  }

  // The order alternates (A B, B A, ...), so that a drift of the machine affects both alike.
  void measure_round(const RunConfig& base, const RunConfig& other, std::vector<double>& baseline,
                     std::vector<double>& changed) {
    const auto measure_base = [&] { baseline.push_back(meter_.steps(base, Ablation::none)); };
    const bool base_first = changed.size() % 2 == 0;
    if (base_first) measure_base();
    changed.push_back(meter_.steps(other, Ablation::none, nullptr, hopeless * median(baseline)));
    if (!base_first) measure_base();
  }

  void confirm() {
    if (out_.changes.empty() || stop_requested_on_any_rank(world_)) return;
    log::info("measuring all changes together");
    if (!out_.start_failure.empty()) return out_.tuned.push_back(meter_.steps(best_, Ablation::none));
    out_.noise = noise();
    const auto is_open = [&] {  // faster, but not yet beyond the noise
      const auto gains = TuneTrial{.changed = out_.tuned, .baseline = out_.baseline}.gains();
      return gains.size() < max_confirming_rounds && median(gains) >= min_gain && !out_.is_significant();
    };
    while ((out_.tuned.size() < min_confirming_rounds || is_open()) && !stop_requested_on_any_rank(world_))
      measure_round(original_, best_, out_.baseline, out_.tuned);
  }

  void note_untried(const BottleneckMetrics& e, const std::vector<SearchAxis>& left) {
    for (const std::string& key : tuned_keys()) {
      if (searched_.count(key) || (key == "train.global_batch" && !options_.free_batch)) continue;
      const auto axis = std::find_if(left.begin(), left.end(), [&](const SearchAxis& a) { return a.key == key; });
      std::string why = "no other value applies here";
      if (options_.keep.count(key)) why = "it keeps its value (--keep)";
      if (key.starts_with("cuda.nccl") && !e.config.communication.nccl) continue;
      if (key == "comm.bucket_size" && e.config.machine.ranks == 1) why = "a single rank does not communicate";
      if (axis != left.end())
        why = e.share(axis->bound) < min_tuned_share
                  ? fmt::format("what it acts against takes less than {:g} % of the step", 100 * min_tuned_share)
                  : out_.stopped;
      out_.untried.push_back(fmt::format("{}: {}", key, why));
    }
  }

  void note_consequences() {
    const auto value = [&](const std::string& key) -> std::string {
      for (const auto& [name, value] : out_.changes)
        if (name == key) return value;
      return "";
    };
    if (const std::string batch = value("train.global_batch"); !batch.empty())
      out_.consequences.push_back(
          learning_rate_note({value_text(original_, "optim.name"), original_.optim.lr, original_.optim.lr_batch,
                              original_.train.global_batch, std::stoll(batch)}));
    if (!value("run.threads").empty())
      out_.consequences.push_back("another number of threads may round floating-point sums differently");
    if (const std::string rows = value("train.micro_batch"); !rows.empty() && has_batch_statistics_)
      out_.consequences.push_back(
          fmt::format("batch norm computes its statistics over {} samples at once, which changes the training", rows));
  }

  World& world_;
  const ParsedArguments& parsed_;
  const TuneOptions& options_;
  StepMeter meter_;
  const Stopwatch watch_;
  RunConfig original_, best_;
  TuneLimits limits_;
  TuneOutcome out_;
  std::set<std::string> searched_;
  std::vector<double> differences_;
  bool has_batch_statistics_ = false;
};

}  // namespace

const std::vector<std::string>& tuned_keys() {
  static const std::vector<std::string> keys{"data.reader",       "data.workers",       "data.prefetch",
                                             "comm.bucket_size",  "cuda.nccl_max_ctas", "cuda.nccl_cta_policy",
                                             "cuda.nccl_windows", "train.global_batch", "train.micro_batch",
                                             "run.threads",       "model.fusion"};
  return keys;
}

TuneOutcome tune(World& world, const ParsedArguments& parsed, const TuneOptions& options) {
  const log::SuppressRepeats once;
  return Tuning(world, parsed, options).run();
}

}  // namespace millrace
