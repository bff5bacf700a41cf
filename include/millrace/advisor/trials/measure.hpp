// Steps of whole configurations, measured one beside the other in this process: what diagnose and tune go by.
#pragma once
#include <chrono>
#include <limits>

#include "millrace/advisor/trials/probe.hpp"
#include "millrace/config/arguments.hpp"

namespace millrace {

// The same number on all ranks, rank 0's: they decide by it what to run next. Collective.
double from_rank_0(World&, double value);
bool stop_requested_on_any_rank(World&);  // was any rank? Collective

Flag budget_flag(const std::string& help);
double budget_of(const ParsedArguments&);  // seconds

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began_ = Clock::now();
};

class StepMeter {
 public:
  // Each measurement takes about so many seconds.
  StepMeter(World& world, double seconds) : world_(world), seconds_(seconds) {}
  // Seconds of a step, the same on all ranks, for as many samples as a step of the first measurement had. Reads on
  // where the last one ended. slowest: as probe_steps, of such steps. Collective.
  double steps(const RunConfig&, Ablation, StepProbe* out = nullptr,
               double slowest = std::numeric_limits<double>::infinity());
  double batch() const { return batch_; }           // samples of a step of the first measurement
  std::int64_t next_step() const { return next_; }  // whose samples were not read yet

 private:
  World& world_;
  double seconds_;
  std::int64_t next_ = 0;
  double batch_ = 0;
};

// Times as configured, without reading, and without sums either, by turns: a slow moment of the machine meets all of
// them.
struct AblationTimes {
  std::vector<double> full, no_input, no_all_reduce;
  StepProbe probe;     // as configured
  StepProbe resident;  // without reading
};
// No other turn begins after so many seconds.
AblationTimes measure_ablations(World&, StepMeter&, const RunConfig&, int turns,
                                double within = std::numeric_limits<double>::infinity());
// Their medians and the probe's setting, the same on all ranks; all else is `run`'s.
BottleneckMetrics probed_metrics(World&, const AblationTimes&, BottleneckMetrics run = {});

}  // namespace millrace
