// Probes: the time of steps with everything enabled or with a part disabled, in this process, with the real data,
// network and ranks. A probe writes nothing, and no weight outlives it. All functions are collective.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

#include "millrace/advisor/rules/bottleneck_metrics.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"

namespace millrace {

// What a probe leaves out. Each value also leaves out what the values before it leave out.
enum class Ablation {
  none,
  no_input,          // each slot of the loader is filled once; its samples stay
  no_communication,  // gradients are not all-reduced; the ranks only synchronise after each step
  no_optimizer       // weights are not updated
};

struct StepProbe {
  std::int64_t steps = 0;               // full steps that were measured
  std::int64_t batch = 0;               // samples of a step
  double seconds = 0;                   // per step; a mean, because waits come in bursts, without outliers
  std::int64_t next_step = 0;           // the first step whose samples were not read yet
  double flops = 0;                     // of a step on this rank, forward and backward
  int fusion = 0, max_fusion = 0;       // as in TuneLimits
  double memory = 0, memory_limit = 0;  // bytes of this rank, planned and allowed
  std::uint64_t gradient_bytes = 0;     // of the whole gradient as float32
  bool batch_statistics = false;        // the network has batch norms, so results depend on the micro-batch
  ResolvedConfig config;
  RankAccount rank;  // this rank's host, cores, loader, and seconds by phase in the measured steps
};

// Runs steps for about `seconds` seconds, from `first_step` on. Ends early when steps take longer than `slowest`
// seconds, which two steps show. Error(config) on all ranks if the configuration fails on any, for example for lack of
// memory.
StepProbe probe_steps(World&, const RunConfig&, Ablation, std::int64_t first_step, double seconds,
                      double slowest = std::numeric_limits<double>::infinity());

// Computed from sizes alone, for the rank that needs most.
struct MemoryProbe {
  std::int64_t micro_batch = 0;      // as configured
  std::int64_t max_micro_batch = 0;  // the largest that fits, up to a rank's share of a step
  std::string problem;               // why the configured one does not fit; empty: it does
};
MemoryProbe probe_memory(World&, const RunConfig&);

// Parts of a step, each measured by itself.
struct PartsProbe {
  double loader_rate = 0;     // samples/s of all ranks together, delivered to a consumer that takes no time
  double decoding_share = 0;  // of the loader's work on this rank
  double peak_flops = 0;      // FLOP/s of this rank's device at best
  RankAccount communication;  // one all-reduce of the whole gradient, and the links that it may use
};
PartsProbe probe_parts(World&, const RunConfig&, std::int64_t first_step, double seconds, std::uint64_t gradient_bytes);

}  // namespace millrace
