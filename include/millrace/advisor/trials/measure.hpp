// Measurements of whole configurations: the time of a step, with all parts or with some disabled. diagnose and tune
// decide by them. All of it runs in this process.
#pragma once
#include <chrono>
#include <limits>

#include "millrace/advisor/trials/probe.hpp"
#include "millrace/config/arguments.hpp"

namespace millrace {

// Rank 0's value on all ranks, so that they decide alike. Collective.
double from_rank_0(World&, double value);
// Did any rank receive a stop signal? Collective.
bool stop_requested_on_any_rank(World&);

// The flag --budget, and its value in seconds.
Flag budget_flag(const std::string& help);
double budget_of(const ParsedArguments&);

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began_ = Clock::now();
};

// Measures steps of one configuration after the other. Each measurement reads on where the last one ended, so that the
// page cache gives no configuration an advantage.
class StepMeter {
 public:
  // seconds: of each measurement, approximately.
  StepMeter(World& world, double seconds) : world_(world), seconds_(seconds) {}
  // Seconds per step, the same on all ranks, scaled to the samples of a step of the first measurement. slowest: as in
  // probe_steps, for such a step. Collective.
  double steps(const RunConfig&, Ablation, StepProbe* out = nullptr,
               double slowest = std::numeric_limits<double>::infinity());
  double batch() const { return batch_; }           // samples of a step of the first measurement
  std::int64_t next_step() const { return next_; }  // the first step whose samples were not read yet

 private:
  World& world_;
  double seconds_;
  std::int64_t next_ = 0;
  double batch_ = 0;
};

// Seconds per step in each round: as configured, without input, and also without all-reduces. The three alternate, so
// that a slow moment of the machine affects all of them.
struct AblationTimes {
  std::vector<double> full, no_input, no_all_reduce;
  StepProbe probe;     // of the last measurement as configured
  StepProbe resident;  // of the last measurement without input
};
// No further round begins after `within` seconds. Collective.
AblationTimes measure_ablations(World&, StepMeter&, const RunConfig&, int rounds,
                                double within = std::numeric_limits<double>::infinity());
// The metrics of a probe: the medians of these times and the probe's configuration, the same on all ranks. Everything
// else is kept from `run`, the metrics of a finished run. Collective.
BottleneckMetrics probed_metrics(World&, const AblationTimes&, BottleneckMetrics run = {});

}  // namespace millrace
