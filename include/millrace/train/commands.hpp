// The entry points of training: the functions that the commands in src/app call with a RunConfig.
#pragma once
#include <string>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

// Trains until the last step (returns Exit::ok) or until a stop is requested (returns Exit::stopped). The account
// measures time from `begun` on. If `evidence` is given, it receives the metrics on which the verdict is based.
// Collective.
Exit train(World&, const RunConfig&, Timeline::Clock::time_point begun = Timeline::Clock::now(),
           BottleneckMetrics* evidence = nullptr);
// Evaluates a checkpoint on data.valid and prints loss, top-1 and top-5 accuracy. checkpoint: a path, or "" for the
// newest intact checkpoint in run.dir. Error(data) if there is none. Collective.
Exit evaluate(World&, const RunConfig&, const std::string& checkpoint);
// Describes a run without training: the network layer by layer, the memory plan, the buckets and the steps per epoch.
// Collective.
std::string describe_plan(World&, const RunConfig&);

}  // namespace millrace
