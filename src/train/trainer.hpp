// Trainer: one run of a Session. The step is as plain as it reads in step(); the host looks at a step's results when
// the device is done with it, one step late where the device does not share the host's memory.
#pragma once
#include <memory>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

class Trainer {
 public:
  // The account counts from `begun` on.
  Trainer(World&, const RunConfig&, Timeline::Clock::time_point begun = Timeline::Clock::now());
  ~Trainer();
  Exit run();
  const BottleneckMetrics& evidence() const;  // after run(), the same on all ranks
  void one_step();                            // benches and tests: a step without metrics, evaluation or checkpoints

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
