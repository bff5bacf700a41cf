// Probes: what steps take when all of a run goes on, and when a part of it is left out, in this process, with the real
// data, network and ranks. Nothing is written, and no weight outlives a probe. All are collective, and end together.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"

namespace millrace {

enum class Ablation {
  nothing,
  reading,   // each place of the loader is filled once, and its samples stay
  sums,      // nor do ranks add up their gradients: they meet only after each step
  optimizer  // nor do the weights change
};

struct StepProbe {
  std::int64_t steps = 0, batch = 0;    // full steps that were measured; samples of one
  double seconds = 0;                   // of a step, on average, as waits come in bursts; without what stood out
  std::int64_t next_step = 0;           // whose samples were not read yet
  double flops = 0;                     // of a step on this rank, forward and backward
  int fusion = 0, most_fusion = 0;      // the level that is used, and the last there is
  double memory = 0, memory_limit = 0;  // bytes planned, of those that may be; of this rank
  std::uint64_t gradient_bytes = 0;     // float32
  bool batch_statistics = false;        // the network has batch norms: results depend on the micro-batch
  ResolvedConfig setting;
  RankAccount rank;  // this one's host, cores, loader, and time by phase in those steps
};

// About so many seconds of steps, from `first_step` on, whose samples may then be new to the page cache. Ends early
// when steps take longer than `slowest` seconds, which two of them show. Error(config) on all ranks where the
// configuration fails on any, as with too little memory.
StepProbe probe_steps(World&, const RunConfig&, Ablation, std::int64_t first_step, double seconds,
                      double slowest = std::numeric_limits<double>::infinity());

// From sizes alone, on the rank that needs most.
struct MemoryProbe {
  std::int64_t micro_batch = 0, most = 0;  // as configured; the largest that fits, at most a rank's share of a step
  std::string problem;                     // why the configured one does not fit; empty: it does
};
MemoryProbe probe_memory(World&, const RunConfig&);

struct PartsProbe {
  double loader_rate = 0;  // samples/s of all ranks together, delivered to steps that take no time
  double decoding = 0;     // share of the loader's work on this rank
  double peak_flops = 0;   // FLOP/s of this rank's device at best
  RankAccount sums;        // a sum of the whole gradient over the ranks, with nothing beside it; the ways it may take
};
PartsProbe probe_parts(World&, const RunConfig&, std::int64_t first_step, double seconds, std::uint64_t gradient_bytes);

}  // namespace millrace
