// What the program can do with a RunConfig: the entries that src/app calls.
#pragma once
#include <string>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

// Trains to the end or to a request to stop; Exit::ok or Exit::stopped. The account counts from `begun` on; evidence
// becomes what it says for the verdict. Collective.
Exit train(World&, const RunConfig&, Timeline::Clock::time_point begun = Timeline::Clock::now(),
           BottleneckMetrics* evidence = nullptr);
// Evaluates a checkpoint (path, or "" for the newest valid one of run.dir) on data.valid; prints loss, top-1, top-5.
Exit evaluate(World&, const RunConfig&, const std::string& checkpoint);
// No training: network layer by layer, memory plan, buckets, steps per epoch, as text for rank 0.
std::string describe_plan(World&, const RunConfig&);
}  // namespace millrace
