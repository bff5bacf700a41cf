#include "millrace/advisor/trials/diagnosis.hpp"

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
constexpr std::size_t confirming_turns = 5;
constexpr double least_input = 0.03;  // share of the step: below it the input's parts are not measured

RunConfig with(World& world, ParsedArguments parsed, const std::string& key, const std::string& value) {
  std::erase_if(parsed.keys, [&](const Override& o) { return o.key == key; });
  parsed.keys.push_back({key, {value}});
  return load_config(world, parsed);
}

double mean(const std::vector<double>& of) { return std::accumulate(of.begin(), of.end(), 0.0) / double(of.size()); }

std::string advice_of(const Change& c) { return cat(c.key, " ", c.from, " -> ", c.to); }

class Diagnosis {
 public:
  Diagnosis(World& world, const ParsedArguments& parsed, const DiagnoseOptions& options)
      : world_(world), parsed_(parsed), options_(options), meter_(world, options.seconds) {}

  bool over() { return from_rank_0(world_, watch_.seconds()) > options_.budget; }

  BottleneckMetrics measure(const RunConfig& config, const BottleneckMetrics& run) {
    const AblationTimes shares = measure_ablations(world_, meter_, config, 3, options_.budget / 4);
    BottleneckMetrics e = probed_metrics(world_, shares, run);
    if (run.steps == 0) {
      std::vector<RankAccount> ranks;
      for (const std::string& one : world_.gather(Account{{shares.probe.rank}}.json()))
        ranks.push_back(RankAccount::from_json(one));
      e.set_straggler(ranks), e.set_machine(ranks);
    }
    e.without_optimizer = meter_.steps(config, Ablation::optimizer);
    e.optimizer = std::max(0.0, e.without_sums - e.without_optimizer);
    e.gradient_bytes = from_rank_0(world_, double(shares.probe.gradient_bytes));
    const PartsProbe parts =
        probe_parts(world_, config, meter_.next_step(), options_.seconds, std::uint64_t(e.gradient_bytes));
    for (const CollectiveOpStats& sum : parts.sums.sums) e.sum_alone = from_rank_0(world_, sum.busy);
    e.set_link(world_.node_count(), parts.sums);
    e.loader_rate = from_rank_0(world_, parts.loader_rate), e.peak_flops = from_rank_0(world_, parts.peak_flops);
    e.decoding = from_rank_0(world_, parts.decoding);
    e.batch = meter_.batch();
    return e;
  }

  Trial attempt(const RunConfig& config, const Change& change) {
    Trial trial{change};
    TrialRounds turns;
    if (over()) return trial.failure = text_of_budget(), trial;
    log::info(cat("trying ", change.key, " = ", change.to));
    try {
      const RunConfig other = everywhere(change);
      // Twice also where it was no better: a moment without the cores must not drop what helps. Half as fast is no
      // moment.
      do measure_with_baseline(config, other, turns);
      while (turns.baseline.size() < 2 && turns.changed[0] < 2 * turns.baseline[0]);
      trial.step = *std::min_element(turns.changed.begin(), turns.changed.end());
      trial.baseline = *std::min_element(turns.baseline.begin(), turns.baseline.end());
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      trial.failure = error.what();
    }
    return trial;
  }

  // What is advised first is measured anew: of many trials the best one was lucky, too. By means: a machine may be in
  // one state for some seconds and then in another one (what its cores share with others), and a run sees all of them.
  void confirm(const RunConfig& config, Trial& trial) {
    const RunConfig other = with(world_, parsed_, trial.change.key, trial.change.to);
    TrialRounds turns;
    while (turns.baseline.size() < confirming_turns && !stop_requested_on_any_rank(world_) && !over())
      measure_with_baseline(config, other, turns);
    if (turns.baseline.empty()) return;
    trial.step = mean(turns.changed), trial.baseline = mean(turns.baseline);
    trial.turns = int(turns.baseline.size());
    for (std::size_t i = 0; i < turns.baseline.size(); ++i) trial.faster += turns.changed[i] < turns.baseline[i];
  }

 private:
  std::string text_of_budget() const { return cat("its time is up (--budget ", options_.budget, "s)"); }
  // A value that one rank cannot take is none for the others.
  RunConfig everywhere(const Change& change) {
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
  struct TrialRounds {
    std::vector<double> changed, baseline;  // seconds of a step
  };
  void measure_with_baseline(const RunConfig& config, const RunConfig& other, TrialRounds& turns) {
    turns.changed.push_back(meter_.steps(other, Ablation::nothing));
    turns.baseline.push_back(meter_.steps(config, Ablation::nothing));
  }

  World& world_;
  const ParsedArguments& parsed_;
  const DiagnoseOptions options_;
  const Stopwatch watch_;
  StepMeter meter_;
};

// Rank 0's: each rank has seen something else, and all have to try the same.
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

// The first finding's trial where it has not been confirmed; none: -1. The same on all ranks.
int to_confirm(World& world, const BottleneckMetrics& e, const std::vector<Trial>& trials,
               const std::vector<bool>& confirmed) {
  const auto found = findings(e, trials);
  int first = -1;
  for (int i = 0; i < int(trials.size()) && first < 0 && !found.empty(); ++i)
    if (const Trial& t = trials[std::size_t(i)];
        !confirmed[std::size_t(i)] && t.failure.empty() && found[0].advice == advice_of(t.change))
      first = i;
  return int(from_rank_0(world, first));
}

}  // namespace

DiagnosisResult diagnose(World& world, const ParsedArguments& parsed, const RunConfig& config,
                         const DiagnoseOptions& options, const BottleneckMetrics& run,
                         const std::filesystem::path& layers) {
  const log::SuppressRepeats once;
  Diagnosis diagnosis(world, parsed, options);
  const BottleneckMetrics evidence = diagnosis.measure(config, run);
  std::vector<Trial> trials;
  for (const Change& change : changes_of_rank_0(world, evidence)) {
    if (stop_requested_on_any_rank(world)) break;  // what has been tried so far is the verdict
    trials.push_back(diagnosis.attempt(config, change));
  }
  // Until what is advised first has been confirmed: the one before may have been lucky.
  std::vector<bool> confirmed(trials.size());
  for (int next; !stop_requested_on_any_rank(world) && (next = to_confirm(world, evidence, trials, confirmed)) >= 0;)
    diagnosis.confirm(config, trials[std::size_t(next)]), confirmed[std::size_t(next)] = true;
  DiagnosisResult out{evidence, trials, ""};
  if (stop_requested_on_any_rank(world)) return out;
  const StepBench bench = bench_step(world, config, layer_repeats, false);
  std::string problem;
  if (world.rank() == 0 && !layers.empty()) try {
      write_file_atomically(layers, bench.layers_json());
    } catch (const Error& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
  std::string input;
  if (evidence.share(Bound::input) >= least_input && evidence.reader != "synthetic")
    input = cat("\nthe input, each part by itself:\n", bench_pipeline(world, config, 1, options.seconds / 4).str());
  out.parts = cat(input, "\noperations of a micro-batch, each by itself:\n", bench.table(), "\n", bench.peaks.str());
  return out;
}

}  // namespace millrace
