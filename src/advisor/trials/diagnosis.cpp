#include "millrace/advisor/trials/diagnosis.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "millrace/advisor/trials/measure.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/bench/step.hpp"

namespace millrace {
namespace {

constexpr int layer_repeats = 5;
constexpr std::size_t confirming_rounds = 5;
constexpr double min_input_share = 0.03;  // of the step; below it the parts of the input are not measured

// The configuration with one key changed.
RunConfig with(World& world, ParsedArguments parsed, const std::string& key, const std::string& value) {
  std::erase_if(parsed.keys, [&](const Override& o) { return o.key == key; });
  parsed.keys.push_back({key, {value}});
  return load_config(world, parsed);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

std::string advice_of(const Change& c) { return fmt::format("{} {} -> {}", c.key, c.from, c.to); }

class Diagnosis {
 public:
  Diagnosis(World& world, const ParsedArguments& parsed, const DiagnoseOptions& options)
      : world_(world), parsed_(parsed), options_(options), meter_(world, options.seconds) {}

  bool over() { return from_rank_0(world_, watch_.seconds()) > options_.budget; }

  BottleneckMetrics measure(const RunConfig& config, const BottleneckMetrics& run) {
    const AblationTimes ablations = measure_ablations(world_, meter_, config, 3, options_.budget / 4);
    BottleneckMetrics e = probed_metrics(world_, ablations, run);
    if (run.run.steps == 0) {
      std::vector<RankAccount> ranks;
      for (const std::string& one : world_.gather(Account{{ablations.probe.rank}}.json()))
        ranks.push_back(RankAccount::from_json(one));
      e.set_straggler(ranks);
      e.set_machine(ranks);
    }
    e.without.optimizer = meter_.steps(config, Ablation::no_optimizer);
    e.times.optimizer = std::max(0.0, e.without.communication - e.without.optimizer);
    e.communication.gradient_bytes = from_rank_0(world_, double(ablations.probe.gradient_bytes));
    const PartsProbe parts = probe_parts(world_, config, meter_.next_step(), options_.seconds,
                                         std::uint64_t(e.communication.gradient_bytes));
    for (const CollectiveOpStats& one : parts.communication.sums)
      e.communication.all_reduce_seconds = from_rank_0(world_, one.busy);
    e.set_link(world_.node_count(), parts.communication);
    e.input.loader_rate = from_rank_0(world_, parts.loader_rate);
    e.computing.peak_flops = from_rank_0(world_, parts.peak_flops);
    e.input.decoding_share = from_rank_0(world_, parts.decoding_share);
    e.run.batch = meter_.batch();
    return e;
  }

  Trial attempt(const RunConfig& config, const Change& change) {
    Trial trial{change};
    TrialRounds rounds;
    if (over()) {
      trial.failure = text_of_budget();
      return trial;
    }
    log::info(fmt::format("trying {} = {}", change.key, change.to));
    try {
      const RunConfig changed = config_on_all_ranks(change);
      // Two rounds even if the first was no faster: a moment without the cores must not hide a gain. A change that
      // takes twice as long needs no second round.
      do measure_round(config, changed, rounds);
      while (rounds.baseline.size() < 2 && rounds.changed[0] < 2 * rounds.baseline[0]);
      trial.step = *std::min_element(rounds.changed.begin(), rounds.changed.end());
      trial.baseline = *std::min_element(rounds.baseline.begin(), rounds.baseline.end());
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      trial.failure = error.what();
    }
    return trial;
  }

  // Measures the first advice again, because the best of many trials was also lucky. Uses means: the state of a machine
  // changes every few seconds with the work that shares its cores, and a run sees all states.
  void confirm(const RunConfig& config, Trial& trial) {
    const RunConfig changed = with(world_, parsed_, trial.change.key, trial.change.to);
    TrialRounds rounds;
    while (rounds.baseline.size() < confirming_rounds && !stop_requested_on_any_rank(world_) && !over())
      measure_round(config, changed, rounds);
    if (rounds.baseline.empty()) return;
    trial.step = mean(rounds.changed);
    trial.baseline = mean(rounds.baseline);
    trial.rounds = int(rounds.baseline.size());
    for (std::size_t i = 0; i < rounds.baseline.size(); ++i) trial.faster += rounds.changed[i] < rounds.baseline[i];
  }

 private:
  struct TrialRounds {
    std::vector<double> changed, baseline;  // seconds per step
  };

  std::string text_of_budget() const { return fmt::format("its time is up (--budget {:g}s)", options_.budget); }

  // The changed configuration. Error(config) on all ranks if any rank rejects the value.
  RunConfig config_on_all_ranks(const Change& change) {
    RunConfig out;
    std::string problem;
    try {
      out = with(world_, parsed_, change.key, change.to);
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      problem = error.what();
    }
    world_.agree(Exit::config, problem);
    return out;
  }

  void measure_round(const RunConfig& config, const RunConfig& changed, TrialRounds& rounds) {
    rounds.changed.push_back(meter_.steps(changed, Ablation::none));
    rounds.baseline.push_back(meter_.steps(config, Ablation::none));
  }

  World& world_;
  const ParsedArguments& parsed_;
  const DiagnoseOptions options_;
  const Stopwatch watch_;
  StepMeter meter_;
};

// Rank 0's list on all ranks: each rank has measured slightly different times, and all have to try the same changes.
std::vector<Change> changes_of_rank_0(World& world, const BottleneckMetrics& e) {
  using nlohmann::json;
  json list = json::array();
  for (const Change& c : changes_to_try(e))
    list.push_back({int(c.bound), c.key, c.from, c.to, c.caution, c.min_gain, c.evidence});
  std::vector<Change> out;
  for (const json& c : json::parse(world.broadcast_string(list.dump())))
    out.push_back({Bound(c[0].get<int>()), c[1], c[2], c[3], c[4], c[5].get<double>(), c[6]});
  return out;
}

// The index of the first finding's trial if it has not been confirmed yet, otherwise -1. The same on all ranks.
int trial_to_confirm(World& world, const BottleneckMetrics& e, const std::vector<Trial>& trials,
                     const std::vector<bool>& confirmed) {
  const auto found = findings(e, trials);
  int first = -1;
  for (int i = 0; i < int(trials.size()) && first < 0 && !found.empty(); ++i)
    if (const Trial& t = trials[std::size_t(i)];
        !confirmed[std::size_t(i)] && t.failure.empty() && found[0].advice == advice_of(t.change))
      first = i;
  return int(from_rank_0(world, first));
}

// Writes the operations of a micro-batch beside their roofline; a failure on rank 0 is an error on all ranks.
void write_layers(World& world, const std::filesystem::path& file, const StepBench& bench) {
  std::string problem;
  if (world.rank() == 0 && !file.empty()) try {
      write_file_atomically(file, bench.layers_json());
    } catch (const Error& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
}

}  // namespace

DiagnosisResult diagnose(World& world, const ParsedArguments& parsed, const RunConfig& config,
                         const DiagnoseOptions& options, const BottleneckMetrics& run,
                         const std::filesystem::path& layers) {
  const log::SuppressRepeats once;
  Diagnosis diagnosis(world, parsed, options);
  const BottleneckMetrics metrics = diagnosis.measure(config, run);
  std::vector<Trial> trials;
  for (const Change& change : changes_of_rank_0(world, metrics)) {
    if (stop_requested_on_any_rank(world)) break;  // the verdict uses the trials made so far
    trials.push_back(diagnosis.attempt(config, change));
  }
  // Confirming the first advice may put another one first, so this repeats until the first one is confirmed.
  std::vector<bool> confirmed(trials.size());
  while (!stop_requested_on_any_rank(world)) {
    const int next = trial_to_confirm(world, metrics, trials, confirmed);
    if (next < 0) break;
    diagnosis.confirm(config, trials[std::size_t(next)]);
    confirmed[std::size_t(next)] = true;
  }
  DiagnosisResult out{metrics, trials, ""};
  if (stop_requested_on_any_rank(world)) return out;
  const StepBench bench = bench_step(world, config, layer_repeats, false);
  write_layers(world, layers, bench);
  std::string input;
  if (metrics.share(Bound::input) >= min_input_share && metrics.config.input.reader != "synthetic")
    input = fmt::format("\nthe parts of the input, each by itself:\n{}",
                        bench_pipeline(world, config, 1, options.seconds / 4).str());
  out.parts = fmt::format("{}\nthe operations of a micro-batch, each by itself:\n{}\n{}", input, bench.table(),
                          bench.peaks.str());
  return out;
}

}  // namespace millrace
