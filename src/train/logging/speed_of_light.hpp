// SpeedOfLight: how close the steps come to what the machine can do. The least time of a step is the sum over its
// operations, forward and backward, and the passes of the optimizer, of
//
//   max(FLOP / rate of arithmetic, bytes / rate of memory)
//
// if all ranks share the work evenly. Loading and communication count nothing in it. The share of a step is its least
// time over the time that it took. It is at most 1: steps that are faster than the rates allow raise them for the rest
// of the run.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/device/activity.hpp"
#include "millrace/runs/metrics.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "train/logging/machine_rates.hpp"

namespace millrace {

// The steps of this launch.
struct LightStats {
  struct Operation {
    std::string name, kind;
    double seconds = 0;        // of a step of rank 0, forward and backward; 0: not traced
    double least_seconds = 0;  // the same by the rates
  };
  double share = 0;                   // 0: not known
  double least_seconds = 0;           // of a full step
  double optimizer_seconds = 0;       // of them
  std::vector<Operation> operations;  // the longest first; one of them is the optimizer
};

class SpeedOfLight {
 public:
  // With log.speed_of_light, takes the rates of the machine (machine_rates.hpp). Construct it before the network
  // allocates its memory. Collective.
  explicit SpeedOfLight(Session&);
  ~SpeedOfLight();
  bool known() const { return rates_.known(); }
  const MachineRates& rates() const { return rates_; }
  void set_network(Network&);    // call it once
  double least_seconds() const;  // of a full step
  void before_enqueue();         // call before each step: where the host runs the operations, some steps are traced
  void step(StepMetrics&);       // sets speed_of_light of a collected step
  LightStats stats() const;

  // Steps first_traced to end_traced of each `interval` steps are traced.
  static constexpr std::int64_t first_traced = 4, end_traced = 12, interval = 1000;

 private:
  struct Bound {
    std::size_t operation = 0;  // in operations_
    double seconds = 0;         // of one call
  };
  void set_bounds(const Program&, bool largest);
  void collect_trace();

  Session& s_;
  MachineRates rates_;
  double scale_ = 1;           // rates were raised by this factor since set_network(): divides least times
  double row_seconds_ = 0;     // least time of a sample on one rank, in the largest micro-batch
  double update_seconds_ = 0;  // of the optimizer
  std::map<const char*, Bound> bounds_;
  std::vector<LightStats::Operation> operations_;  // least_seconds: of a micro-batch of micro_rows_
  double micro_rows_ = 0;
  std::unique_ptr<ActivityTracer> tracer_;
  std::vector<LightStats::Operation> traced_;  // sums over traced steps, in the order of operations_
  double traced_update_seconds_ = 0;
  std::int64_t enqueued_ = 0, traced_steps_ = 0;
  bool tracing_ = false;
  double seconds_ = 0, least_sum_ = 0;            // of all steps
  double window_seconds_ = 0, window_least_ = 0;  // since the rates were compared last
  std::int64_t window_steps_ = 0;
};

}  // namespace millrace
