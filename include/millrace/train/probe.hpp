// Probes: what steps take when all of a run goes on, and when a part of it is left out, in this process, with the real
// data, network and ranks. Nothing is written, and no weight outlives a probe. All are collective, and end together.
#pragma once
#include <cstdint>

#include "millrace/comm/world.hpp"
#include "millrace/telemetry/verdict.hpp"
#include "millrace/train/run_config.hpp"

namespace millrace {

enum class Without {
  nothing,
  reading,  // each place of the loader is filled once, and its samples stay
  sums      // nor do ranks add up their gradients: each goes on alone
};

struct StepProbe {
  std::int64_t steps = 0, batch = 0;  // full steps that were measured; samples of one
  double seconds = 0;                 // of a step, on average: waits come in bursts
  std::int64_t next_step = 0;         // whose samples were not read yet
  double flops = 0;                   // of a step on this rank, forward and backward
  Setting setting;
};

// About so many seconds of steps, from `first_step` on, whose samples may then be new to the page cache.
StepProbe probe_steps(World&, const RunConfig&, Without, std::int64_t first_step, double seconds);

struct PartsProbe {
  double loader_rate = 0;  // samples/s of all ranks together, delivered to steps that take no time
  double peak_flops = 0;   // FLOP/s of this rank's device at best
};
PartsProbe probe_parts(World&, const RunConfig&, std::int64_t first_step, double seconds);

}  // namespace millrace
