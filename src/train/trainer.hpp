// Trainer: trains the network of a run, with checkpoints, evaluations and logs. On a GPU the host collects the results
// of a step only after it has enqueued the next one, so that the device always has work.
#pragma once
#include <memory>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

class Trainer {
 public:
  // The account measures time from `begun` on. The constructor, run() and one_step() are collective.
  Trainer(World&, const RunConfig&, Timeline::Clock::time_point begun = Timeline::Clock::now());
  ~Trainer();
  Exit run();
  const BottleneckMetrics& evidence() const;  // after run(), the same on all ranks
  void one_step();                            // for benchmarks and tests: a step without evaluation or checkpoints

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
