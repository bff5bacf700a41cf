#include "millrace/advisor/trials/measure.hpp"

#include "millrace/base/median.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/system/signals.hpp"

namespace millrace {

double from_rank_0(World& world, double value) {
  world.broadcast(&value, sizeof value, 0);
  return value;
}

bool stop_requested_on_any_rank(World& world) {
  double stop[] = {double(stop_signal() != 0)};
  world.all_reduce(stop, World::Reduce::sum);
  return stop[0] > 0;
}

Flag budget_flag(const std::string& help) { return {"budget", "duration", help, Flag::Arity::one, "2m"}; }

double budget_of(const ParsedArguments& parsed) {
  return option("budget", [&] {
    const std::string text = parsed.get("budget", "2m");
    const double seconds = parse_seconds(text);
    above(0).check(seconds, text);
    return seconds;
  });
}

double StepMeter::steps(const RunConfig& config, Ablation ablation, StepProbe* out, double slowest) {
  const double scale = batch_ > 0 ? double(config.train.global_batch) / batch_ : 1;  // a guess of it is enough
  const StepProbe probe = probe_steps(world_, config, ablation, next_, seconds_, slowest * scale);
  next_ = std::int64_t(from_rank_0(world_, double(probe.next_step)));
  if (out) *out = probe;
  if (batch_ == 0) batch_ = double(probe.batch);
  return from_rank_0(world_, probe.seconds) * batch_ / double(probe.batch);
}

AblationTimes measure_ablations(World& world, StepMeter& meter, const RunConfig& config, int turns, double within) {
  AblationTimes out;
  const Stopwatch watch;
  for (int turn = 0; turn < turns && (turn == 0 || from_rank_0(world, watch.seconds()) < within); ++turn) {
    out.full.push_back(meter.steps(config, Ablation::nothing, &out.probe));
    out.no_input.push_back(meter.steps(config, Ablation::reading, &out.resident));
    out.no_all_reduce.push_back(world.size() > 1 ? meter.steps(config, Ablation::sums) : out.no_input.back());
  }
  return out;
}

BottleneckMetrics probed_metrics(World& world, const AblationTimes& shares, BottleneckMetrics e) {
  static_cast<ResolvedConfig&>(e) = shares.probe.setting;
  e.reader = world.broadcast_string(e.reader);
  e.workers = int(from_rank_0(world, e.workers)), e.cores = int(from_rank_0(world, e.cores));
  e.threads = int(from_rank_0(world, e.threads)), e.half = from_rank_0(world, e.half) != 0;
  e.probed = true, e.late = 0;                                      // left to trials
  e.imbalance = std::max(0.0, e.imbalance - e.slow.input_seconds);  // the rest is the input's share here
  e.step = median(shares.full), e.without_input = median(shares.no_input),
  e.without_sums = median(shares.no_all_reduce);
  const RankAccount& resident = shares.resident.rank;
  e.copy = resident.steps == 0 || !e.gpu
               ? 0
               : from_rank_0(world, resident.seconds[std::size_t(Phase::copy)] / double(resident.steps));
  e.flops = from_rank_0(world, shares.probe.flops);
  e.memory = from_rank_0(world, shares.probe.memory), e.memory_limit = from_rank_0(world, shares.probe.memory_limit);
  return e;
}

}  // namespace millrace
