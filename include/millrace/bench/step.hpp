// Benches of a step and of what feeds it: what the whole costs against the sum of its parts, on the very program that
// trains.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "millrace/bench/loader.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/telemetry/timeline.hpp"
#include "millrace/train/session/peaks.hpp"

namespace millrace {

struct OpTime {
  std::string name, kind, implementation;
  double forward_seconds = 0, backward_seconds = 0;  // best of the repeats, alone, by the device's clock
  Cost forward, backward;
};

struct StepBench {
  double step_seconds = 0;                                  // median of whole micro-batches: forward and backward
  double ops_seconds = 0;                                   // sum of the operations' own best times
  double communication_seconds = 0, full_step_seconds = 0;  // exposed, of whole steps with sums and optimizer; medians
  double without_timestamps_seconds = 0;  // every other step, without the account's marks; 0: as recorded
  std::vector<OpTime> ops;
  Peaks peaks;
  std::array<double, phase_count> phases{};   // of whole steps, medians of this rank
  std::string str(bool every = false) const;  // all of it; the table as below
  // Totals by kind, and the heaviest operations, or every one in the network's order, beside their rooflines.
  std::string table(bool every = false) const;
  std::string layers_json() const;  // the operations, as a run's layers.json has them
};

// Collective; every rank measures at the same time. whole: whole steps, too.
StepBench bench_step(World&, const RunConfig&, int repeats, bool whole = true);

// What the data pipeline of a configuration can deliver, stage by stage, beside the bare limits of the same run. On
// several ranks all measure at the same time, and rates are of all together.
struct PipelineBench {
  std::string source;  // what reads, by how many workers
  double sample_bytes = 0, batch = 0;
  StageRates stages;
  double copy = 0, bare_copy = 0;  // samples/s to the device, and of plain copies of memory; 0: it reads the host's
  double augment = 0;              // samples/s of the input pass: augmented, normalised, cast
  double memory = 0;               // what memory bandwidth allows it
  double delivers() const;         // samples/s: the slowest of loader, copy and input pass
  std::string str() const;
};
PipelineBench bench_pipeline(World&, const RunConfig&, int repeats, double turn_seconds = 0.5);

}  // namespace millrace
