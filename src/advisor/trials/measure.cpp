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
  const double scale = batch_ > 0 ? double(config.train.global_batch) / batch_ : 1;  // an estimate suffices here
  const StepProbe probe = probe_steps(world_, config, ablation, next_, seconds_, slowest * scale);
  next_ = std::int64_t(from_rank_0(world_, double(probe.next_step)));
  if (out) *out = probe;
  if (batch_ == 0) batch_ = double(probe.batch);
  return from_rank_0(world_, probe.seconds) * batch_ / double(probe.batch);
}

AblationTimes measure_ablations(World& world, StepMeter& meter, const RunConfig& config, int rounds, double within) {
  AblationTimes out;
  const Stopwatch watch;
  for (int round = 0; round < rounds && (round == 0 || from_rank_0(world, watch.seconds()) < within); ++round) {
    out.full.push_back(meter.steps(config, Ablation::none, &out.probe));
    out.no_input.push_back(meter.steps(config, Ablation::no_input, &out.resident));
    out.no_all_reduce.push_back(world.size() > 1 ? meter.steps(config, Ablation::no_communication)
                                                 : out.no_input.back());
  }
  return out;
}

BottleneckMetrics probed_metrics(World& world, const AblationTimes& ablations, BottleneckMetrics e) {
  e.config = ablations.probe.config;
  ResolvedConfig::Machine& machine = e.config.machine;
  e.config.input.reader = world.broadcast_string(e.config.input.reader);
  e.config.input.workers = int(from_rank_0(world, e.config.input.workers));
  machine.cores = int(from_rank_0(world, machine.cores));
  machine.threads = int(from_rank_0(world, machine.threads));
  machine.native_bf16 = from_rank_0(world, machine.native_bf16) != 0;
  e.probed = true;
  e.times.late_rank_wait = 0;  // trials show what late ranks cost
  // The part of the imbalance that is input counts as input here.
  e.times.imbalance = std::max(0.0, e.times.imbalance - e.straggler.input_seconds);
  e.times.step = median(ablations.full);
  e.without.input = median(ablations.no_input);
  e.without.communication = median(ablations.no_all_reduce);
  const RankAccount& resident = ablations.resident.rank;
  e.times.copy = resident.steps == 0 || !machine.gpu
                     ? 0
                     : from_rank_0(world, resident.seconds[std::size_t(Phase::copy)] / double(resident.steps));
  e.computing.flops_per_step = from_rank_0(world, ablations.probe.flops);
  e.memory.planned = from_rank_0(world, ablations.probe.memory);
  e.memory.limit = from_rank_0(world, ablations.probe.memory_limit);
  return e;
}

}  // namespace millrace
