// Benchmarks of the training step and of the input pipeline. They run the Program that trains, and compare the whole
// with the sum of its parts.
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
  // The operation by itself: the shortest time of all repeats, by the device's clock.
  double forward_seconds = 0, backward_seconds = 0;
  Cost forward, backward;
};

struct StepBench {
  double step_seconds = 0;  // forward and backward of a micro-batch; median
  double ops_seconds = 0;   // sum of the operations' best times
  // Medians of complete steps, with all-reduce and optimizer: their exposed communication and their duration.
  double communication_seconds = 0, full_step_seconds = 0;
  // Median of every other step, which runs without the timestamps of the timing account; 0: the device captures steps
  // together with their timestamps.
  double without_timestamps_seconds = 0;
  std::vector<OpTime> ops;
  Peaks peaks;
  std::array<double, phase_count> phases{};   // of complete steps; medians of this rank
  std::string str(bool every = false) const;  // all results, with the table below
  // Totals for each kind of operation; then the slowest operations or, with `every`, all in the order of the network.
  // Each row includes the roofline.
  std::string table(bool every = false) const;
  std::string layers_json() const;  // the content of a run's layers.json
};

// Collective: all ranks measure at the same time. complete_steps: measures those too, not only micro-batches.
StepBench bench_step(World&, const RunConfig&, int repeats, bool complete_steps = true);

// The rates of the input pipeline of a configuration, stage by stage, and the limits of the machine, measured in the
// same run. All ranks measure at the same time; rates are sums over ranks.
struct PipelineBench {
  std::string source;  // describes the engine, the workers and the ring
  double sample_bytes = 0;
  double batch = 0;  // rows of a micro-batch
  StageRates stages;
  // Samples/s of copies to the device, and their limit by plain copies of memory; 0: the device reads host memory.
  double copy = 0, bare_copy = 0;
  double augment = 0;       // samples/s of the input pass: augmentation, normalization, cast; 0: none is needed
  double memory = 0;        // samples/s of the input pass that memory bandwidth allows
  double delivers() const;  // samples/s: the minimum of loader, copy and input pass
  std::string str() const;
};
PipelineBench bench_pipeline(World&, const RunConfig&, int repeats, double turn_seconds = 0.5);

}  // namespace millrace
