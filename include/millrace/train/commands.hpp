// What the program can do with a RunConfig: the entries that src/app calls.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/compute/compute.hpp"
#include "millrace/telemetry/timeline.hpp"
#include "millrace/telemetry/verdict.hpp"
#include "millrace/train/run_config.hpp"

namespace millrace {

// Device, backend and collective by run.device, threads by placement.
Compute make_compute(World&, const RunConfig&, Placement* placement = nullptr);

// Trains to the end or to a request to stop; Exit::ok or Exit::stopped. The account counts from `begun` on; evidence
// becomes what it says for the verdict. Collective.
Exit train(World&, const RunConfig&, Timeline::Clock::time_point begun = Timeline::Clock::now(),
           Evidence* evidence = nullptr);
// Of a run that has ended: what was measured since stands in its summary.json in place of what its account said. Throws
// an Error where it cannot be written.
void rewrite_verdict(const std::filesystem::path& run_dir, const Evidence&, const std::vector<Trial>&);
// Evaluates a checkpoint (path, or "" for the newest valid one of run.dir) on data.valid; prints loss, top-1, top-5.
Exit evaluate(World&, const RunConfig&, const std::string& checkpoint);
// No training: network layer by layer, memory plan, buckets, steps per epoch, as text for rank 0.
std::string describe_plan(World&, const RunConfig&);
// One checkpoint file: step, epoch, tensors with shapes and checksums; what is damaged in it, or nothing.
struct CheckpointText {
  std::string text, damage;
};
CheckpointText describe_checkpoint(const std::string& path);

}  // namespace millrace
