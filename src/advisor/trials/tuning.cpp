#include "millrace/advisor/trials/tuning.hpp"

#include <algorithm>

#include "millrace/advisor/trials/measure.hpp"
#include "millrace/base/host_memory.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/median.hpp"
#include "millrace/config/keys.hpp"

namespace millrace {
namespace {

constexpr std::int64_t most_growth = 16;  // of the global batch
constexpr std::size_t confirming_turns = 5, most_confirming = 9;
constexpr double hopeless = 2;  // times slower: two steps are enough to know

void set(Settings& settings, const std::string& key, const std::string& value) {
  for (auto& [have, now] : settings)
    if (have == key) return void(now = value);
  settings.emplace_back(key, value);
}

Settings joined(Settings settings, const Settings& more) {
  for (const auto& [key, value] : more) set(settings, key, value);
  return settings;
}

// The configuration with the very lines that are printed in the end.
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
    look_for_room();
    out_.before = look(3);
    search(out_.before);
    confirm();
    out_.noise = noise();
    note_consequences();
    return std::move(out_);
  }

 private:
  double noise() const { return noise_of(differences_); }

  // The same on all ranks; says why once.
  bool over() {
    if (!out_.stopped.empty()) return true;
    if (stop_requested_on_any_rank(world_))
      out_.stopped = "asked to stop";
    else if (from_rank_0(world_, watch_.seconds()) > options_.budget)
      out_.stopped = cat("its time is up (--budget ", options_.budget, "s)");
    return !out_.stopped.empty();
  }

  void look_for_room() {
    const MemoryProbe now = probe_memory(world_, original_);
    room_.most_rows = now.most;
    if (options_.free_batch) {
      RunConfig widest = original_;
      widest.train.global_batch *= most_growth, widest.train.micro_batch = 1;  // from 1 sample on: is there room?
      room_.most_rows = probe_memory(world_, widest).most;
      room_.most_global = widest.train.global_batch;
    }
    if (now.problem.empty()) return;
    out_.start_failure = now.problem;
    if (now.most < 1 || options_.keep.count("train.micro_batch")) fail(Exit::config, now.problem);
    take({{"train.micro_batch", std::to_string(now.most)}});
  }

  void take(const Settings& settings) {
    out_.changes = joined(out_.changes, settings);
    best_ = with(world_, parsed_, out_.changes);
  }

  BottleneckMetrics look(int turns) {
    const AblationTimes shares = measure_ablations(world_, meter_, best_, turns);
    for (const auto* list : {&shares.full, &shares.no_input, &shares.no_all_reduce})
      add_differences(differences_, *list);
    const BottleneckMetrics e = probed_metrics(world_, shares);
    room_.gradient_bytes = shares.probe.gradient_bytes;
    room_.fusion = shares.probe.fusion, room_.most_fusion = shares.probe.most_fusion;
    statistics_ = shares.probe.batch_statistics;
    double ring[] = {double(host_memory().available) / 8 / world_.local_size()};
    world_.all_reduce(ring, World::Reduce::min);
    room_.ring_bytes = std::uint64_t(ring[0]);
    return e;
  }

  std::vector<SearchAxis> axes(const BottleneckMetrics& e) const {
    std::vector<SearchAxis> all = tune_axes(e, room_);
    std::erase_if(all, [&](const SearchAxis& a) { return options_.keep.count(a.key) || searched_.count(a.key); });
    for (SearchAxis& axis : all)
      for (Settings& also : axis.along)
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
      if (search_along(left[*next])) e = look(2);
    }
  }

  bool search_along(const SearchAxis& axis) {
    std::vector<TriedValue> tried;
    int best = axis.now;
    while (const auto value = next_value(axis, tried)) {
      if (over()) break;
      Settings settings{{axis.key, axis.values[std::size_t(*value)]}};
      if (!axis.along.empty()) settings = joined(settings, axis.along[std::size_t(*value)]);
      TuneTrial trial{axis.key, axis.values[std::size_t(best)], settings.front().second, {}, {}, false, ""};
      log::info(cat("trying ", trial.key, " = ", trial.to));
      measure(trial, settings);
      tried.push_back({*value, trial.kept});
      if (trial.kept) take(settings), best = *value;
      add_differences(differences_, trial.baseline);
      out_.trials.push_back(std::move(trial));
    }
    return best != axis.now;
  }

  void measure(TuneTrial& trial, const Settings& settings) {
    try {
      const RunConfig other = with(world_, parsed_, joined(out_.changes, settings));
      while (decide_trial(trial.gains(), noise()) == TrialDecision::more && !stop_requested_on_any_rank(world_))
        turn(best_, other, trial.baseline, trial.changed);
      trial.kept = decide_trial(trial.gains(), noise()) == TrialDecision::keep;
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      trial.failure = error.what();
    }
  }

  // A B, then B A, and so on: what grows slower or faster meanwhile meets both alike.
  void turn(const RunConfig& base, const RunConfig& other, std::vector<double>& baseline,
            std::vector<double>& changed) {
    const auto measure_base = [&] { baseline.push_back(meter_.steps(base, Ablation::nothing)); };
    const bool base_first = changed.size() % 2 == 0;
    if (base_first) measure_base();
    changed.push_back(meter_.steps(other, Ablation::nothing, nullptr, hopeless * median(baseline)));
    if (!base_first) measure_base();
  }

  void confirm() {
    if (out_.changes.empty() || stop_requested_on_any_rank(world_)) return;
    log::info("all changes together");
    if (!out_.start_failure.empty()) return out_.tuned.push_back(meter_.steps(best_, Ablation::nothing));
    out_.noise = noise();
    const auto open = [&] {  // is it faster, but not yet beyond the noise?
      const auto gains = TuneTrial{"", "", "", out_.tuned, out_.baseline, false, ""}.gains();
      return gains.size() < most_confirming && median(gains) >= min_gain && !out_.stands();
    };
    while ((out_.tuned.size() < confirming_turns || open()) && !stop_requested_on_any_rank(world_))
      turn(original_, best_, out_.baseline, out_.tuned);
  }

  void note_untried(const BottleneckMetrics& e, const std::vector<SearchAxis>& left) {
    for (const std::string& key : tuned_keys()) {
      if (searched_.count(key) || (key == "train.global_batch" && !options_.free_batch)) continue;
      const auto axis = std::find_if(left.begin(), left.end(), [&](const SearchAxis& a) { return a.key == key; });
      std::string why = "no other value applies here";
      if (options_.keep.count(key)) why = "it stays as it is (--keep)";
      if (key == "comm.bucket_size" && e.ranks == 1) why = "one rank sums with nobody";
      if (axis != left.end())
        why = e.share(axis->bound) < min_tuned_share
                  ? cat("what it is against takes less than ", 100 * min_tuned_share, " % of the step")
                  : out_.stopped;
      out_.untried.push_back(cat(key, ": ", why));
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
      out_.consequences.push_back("other numbers of threads may round sums of floats otherwise");
    if (const std::string rows = value("train.micro_batch"); !rows.empty() && statistics_)
      out_.consequences.push_back(
          cat("batch norm takes its statistics of ", rows, " samples at once: another training"));
  }

  World& world_;
  const ParsedArguments& parsed_;
  const TuneOptions& options_;
  StepMeter meter_;
  const Stopwatch watch_;
  RunConfig original_, best_;
  TuneLimits room_;
  TuneOutcome out_;
  std::set<std::string> searched_;
  std::vector<double> differences_;
  bool statistics_ = false;
};

}  // namespace

const std::vector<std::string>& tuned_keys() {
  static const std::vector<std::string> keys{"data.reader",      "data.workers",       "data.prefetch",
                                             "comm.bucket_size", "train.global_batch", "train.micro_batch",
                                             "run.threads",      "model.fusion"};
  return keys;
}

TuneOutcome tune(World& world, const ParsedArguments& parsed, const TuneOptions& options) {
  const log::SuppressRepeats once;
  return Tuning(world, parsed, options).run();
}

}  // namespace millrace
