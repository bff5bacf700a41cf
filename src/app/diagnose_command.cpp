#include <algorithm>

#include "arguments.hpp"
#include "key_forms.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/median.hpp"
#include "millrace/telemetry/verdict.hpp"
#include "millrace/train/probe.hpp"

namespace millrace::app {
namespace {

std::vector<Flag> flags() {
  return {config_flag(), {"seconds", "S", "of each measurement; there are about 10 to 40", Flag::Takes::one, "1"}};
}

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

  Evidence measure(const RunConfig& config) {
    std::vector<double> full, no_input, no_sums;
    StepProbe probe;
    for (int turn = 0; turn < 3; ++turn) {  // in turns: a slow moment of the machine meets all of them
      full.push_back(steps(config, Without::nothing, &probe));
      no_input.push_back(steps(config, Without::reading));
      no_sums.push_back(world_.size() > 1 ? steps(config, Without::sums) : no_input.back());
    }
    Evidence e;
    e.step = median(full), e.without_input = median(no_input), e.without_sums = median(no_sums);
    e.loader_rate = agreed(world_, probe_loader(world_, config, next_, seconds_));
    e.batch = double(probe.batch), e.ranks = world_.size();
    e.workers = int(agreed(world_, probe.workers)), e.cores = int(agreed(world_, probe.cores));
    e.gpu = probe.gpu, e.chunked = probe.chunked, e.reader = world_.broadcast_string(probe.reader);
    e.precision = name_of_key(config.run.precision), e.compress = config.comm.compress;
    e.bucket = config.comm.bucket, e.chunk_cache = config.data.chunk_cache, e.prefetch = config.data.prefetch;
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
      }
      trial.step = std::min(changed[0], changed[1]), trial.beside = std::min(beside[0], beside[1]);
    } catch (const Error& error) {
      if (error.code() != Exit::config) throw;
      trial.failure = error.what();
    }
    return trial;
  }

 private:
  static std::string name_of_key(Precision p) {
    return p == Precision::fp32 ? "fp32" : p == Precision::bf16 ? "bf16" : "fp16";
  }
  double steps(const RunConfig& config, Without without, StepProbe* out = nullptr) {
    const StepProbe probe = probe_steps(world_, config, without, next_, seconds_);
    next_ = std::int64_t(agreed(world_, double(probe.next_step)));
    if (out) *out = probe;
    return agreed(world_, probe.seconds);
  }

  World& world_;
  const Parsed& parsed_;
  double seconds_;
  std::int64_t next_ = 0;
};

}  // namespace

std::string diagnose_help() {
  return "usage: millrace diagnose -c FILE [-c FILE...] [--section.key VALUE...]\n\n" + flags_help(flags()) +
         "\nMeasures what bounds the training that the configuration describes, by leaving out one part after the "
         "other,\n"
         "then tries changes of single keys against it, each beside the configuration as it is, and prints what to\n"
         "change first. Trains nothing and writes nothing. Start it as the training: same ranks, same machine.\n\n" +
         keys_help({"checkpoint", "log"});
}

Exit diagnose_command(World& world, const Arguments& arguments) {
  const Parsed parsed = parse_arguments(arguments, flags(), true);
  refuse_rest(parsed);
  const double seconds = option("seconds", [&] {
    const std::string text = parsed.get("seconds", "1");
    const double value = parse_number<double>(text);
    between(0.05, 60).check(value, text);
    return value;
  });
  const RunConfig config = load_config(world, parsed);
  const log::Once once;
  Diagnosis diagnosis(world, parsed, seconds);
  const Evidence evidence = diagnosis.measure(config);
  std::vector<Trial> trials;
  for (const Change& change : changes_to_try(evidence)) {
    log::info(cat("trying ", change.key, " = ", change.to));
    trials.push_back(diagnosis.attempt(config, change));
  }
  print(world, verdict(evidence, trials));
  return Exit::ok;
}

}  // namespace millrace::app
