#include "diagnosis.hpp"

#include <algorithm>

#include "millrace/base/log.hpp"
#include "millrace/base/median.hpp"
#include "millrace/comm/signals.hpp"

namespace millrace::app {
namespace {

RunConfig with(World& world, Parsed parsed, const std::string& key, const std::string& value) {
  std::erase_if(parsed.keys, [&](const Override& o) { return o.key == key; });
  parsed.keys.push_back({key, {value}});
  return load_config(world, parsed);
}

// The same number on all ranks: they decide by it what to run next.
double agreed(World& world, double value) {
  world.broadcast(&value, sizeof value, 0);
  return value;
}

class Diagnosis {
 public:
  Diagnosis(World& world, const Parsed& parsed, double seconds) : world_(world), parsed_(parsed), seconds_(seconds) {}

  Evidence measure(const RunConfig& config, const Evidence& run) {
    std::vector<double> full, no_input, no_sums;
    StepProbe probe;
    for (int turn = 0; turn < 3; ++turn) {  // in turns: a slow moment of the machine meets all of them
      full.push_back(steps(config, Without::nothing, &probe));
      no_input.push_back(steps(config, Without::reading));
      no_sums.push_back(world_.size() > 1 ? steps(config, Without::sums) : no_input.back());
    }
    Evidence e = run;
    static_cast<Setting&>(e) = probe.setting;
    e.reader = world_.broadcast_string(e.reader);
    e.workers = int(agreed(world_, e.workers)), e.cores = int(agreed(world_, e.cores));
    e.threads = int(agreed(world_, e.threads)), e.half = agreed(world_, e.half) != 0;
    e.probed = true;
    e.step = median(full), e.without_input = median(no_input), e.without_sums = median(no_sums);
    const PartsProbe parts = probe_parts(world_, config, next_, seconds_);
    e.loader_rate = agreed(world_, parts.loader_rate), e.peak_flops = agreed(world_, parts.peak_flops);
    e.flops = agreed(world_, probe.flops), e.batch = batch_;
    return e;
  }

  Trial attempt(const RunConfig& config, const Change& change) {
    Trial trial{change, 0, 0, ""};
    std::vector<double> changed, beside;
    try {
      const RunConfig other = with(world_, parsed_, change.key, change.to);
      for (int turn = 0; turn < 2; ++turn) {
        changed.push_back(steps(other, Without::nothing));
        beside.push_back(steps(config, Without::nothing));
        if (changed[0] > beside[0]) break;  // it is no better: once is enough
      }
      trial.step = *std::min_element(changed.begin(), changed.end());
      trial.beside = *std::min_element(beside.begin(), beside.end());
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      trial.failure = error.what();
    }
    return trial;
  }

 private:
  double steps(const RunConfig& config, Without without, StepProbe* out = nullptr) {
    const StepProbe probe = probe_steps(world_, config, without, next_, seconds_);
    next_ = std::int64_t(agreed(world_, double(probe.next_step)));
    if (out) *out = probe;
    if (batch_ == 0) batch_ = double(probe.batch);
    return agreed(world_, probe.seconds) * batch_ / double(probe.batch);
  }

  World& world_;
  const Parsed& parsed_;
  double seconds_;
  std::int64_t next_ = 0;
  double batch_ = 0;  // samples of a step as configured, for which all seconds are
};

}  // namespace

std::string diagnose(World& world, const Parsed& parsed, const RunConfig& config, double seconds, const Evidence& run) {
  const log::Once once;
  Diagnosis diagnosis(world, parsed, seconds);
  const Evidence evidence = diagnosis.measure(config, run);
  std::vector<Trial> trials;
  for (const Change& change : changes_to_try(evidence)) {
    double stop[] = {double(stop_signal() != 0)};
    world.all_reduce(stop, World::Reduce::sum);
    if (stop[0] > 0) break;  // what has been tried so far is the verdict
    log::info(cat("trying ", change.key, " = ", change.to));
    trials.push_back(diagnosis.attempt(config, change));
  }
  return verdict(evidence, trials);
}

}  // namespace millrace::app
