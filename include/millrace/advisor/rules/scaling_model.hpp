// Scaling model: predicts a training step on another number of ranks. It takes the step profile of a finished run and a
// model of the interconnect, and simulates one step. All functions are pure. docs/explanation/scaling-model.md has the
// formulas, their sources and the assumptions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

// A message of n bytes takes latency + n / bytes_per_second.
struct LinkModel {
  double bytes_per_second = 0;  // in each direction; 0: bytes take no time
  double latency = 0;           // seconds
};

// How the ranks are connected. The ranks of a node share the link to the other nodes.
struct Interconnect {
  LinkModel inter_node, intra_node;
  int ranks_per_node = 1;
  bool ring = false;  // an all-reduce of p ranks sends 2 (p - 1) messages one after the other; otherwise 2 log2 p
};

// Seconds until every rank has the sum of `bytes` bytes of each rank.
double all_reduce_seconds(double bytes, int ranks, const Interconnect&);
// Seconds of a reduce-scatter or of an all-gather: half of an all-reduce.
double reduce_scatter_seconds(double bytes, int ranks, const Interconnect&);

struct AllReduceTime {
  double bytes = 0, seconds = 0;
};
// The link on which all-reduces of `ranks` ranks take these times. It minimises the squared relative errors; latency
// and bandwidth are never negative. The latency is known only if the sizes differ. Error(data) without measurements.
LinkModel fit_link(const std::vector<AllReduceTime>&, int ranks, bool ring);

// The expected maximum of `draws` independent draws from this distribution.
double expected_longest(const std::vector<TimeBin>&, double draws);

// A measured step and the part of the configuration that the prediction depends on. Times are seconds per step, as in
// StepTimingStats.
struct StepProfile {
  int ranks = 1;          // of the run
  int micro_batches = 1;  // of a rank and step
  double samples = 0;     // of a step, over all ranks
  double step = 0;        // with all waits
  double input = 0, forward = 0, backward = 0, last_backward = 0, optimizer = 0, other = 0;
  std::vector<ReadyBytes> ready;
  std::vector<TimeBin> own;        // times of steps without the waits for other ranks
  double stats_bytes = 0;          // batch statistics that are all-reduced too
  double bucket_bytes = 8 << 20;   // of float32 gradients
  int element_bytes = 4;           // of a gradient as it is sent; the bytes of `ready` count 4
  int weight_bytes = 4;            // of a weight as ZeRO all-gathers it
  bool overlap = true;             // all-reduces start during the backward pass
  bool beside = true;              // communication progresses while the step computes
  bool meets = true;               // ranks synchronise after each step
  bool zero = false;               // optim.zero = 1
  bool fixed_micro_batch = false;  // otherwise a rank's share of the batch is one micro-batch
};
// Means over the ranks. Fields that the configuration decides keep their defaults. Error(data) if the account has no
// step timing.
StepProfile step_profile_of(const Account&);
// The mean all-reduce of each bucket. With ZeRO, a reduce-scatter and an all-gather are half of one each.
std::vector<AllReduceTime> all_reduce_times(const Account&, bool zero);

// weak: the samples of a rank stay the same; strong: the samples of a step do.
enum class Scaling { weak, strong };

// A predicted step. Times are seconds.
struct Prediction {
  int ranks = 1;
  double samples = 0;  // of a step
  double step = 0;
  double own = 0;                // input, computing and the rest, of an average rank
  double straggling = 0;         // how much longer the slowest rank takes
  double sums = 0;               // the links are busy
  double exposed = 0;            // the part of `sums` that the step waits for
  double meeting = 0;            // synchronisation after the step
  bool fully_overlapped = true;  // all all-reduces but those of the last gradients end during the backward pass
  double efficiency = 1;         // samples/s relative to the same number of ranks that do not communicate
};
Prediction predict(const StepProfile&, const Interconnect&, int ranks, Scaling);

// How far a run scales at a required efficiency.
struct ScalingLimit {
  int ranks = 1;             // the largest requested number up to which no number falls below
  double efficiency = 1;     // at that number
  int fails_at = 0;          // the first number that falls below; 0: none
  int overlapped_up_to = 1;  // the largest number up to which the all-reduces are fully overlapped
};

// What limits are asked for: the numbers of ranks, how the batch scales, and the required efficiency.
struct ScalingGoal {
  std::vector<int> ranks;
  Scaling scaling = Scaling::weak;
  double efficiency = 0.9;
};
ScalingLimit scaling_limit(const StepProfile&, const Interconnect&, const ScalingGoal&);

// A change of one key, or ranks of equal speed, with which the run scales further.
struct ScalingAdvice {
  std::string change;  // "comm.grad_dtype = bf16"
  ScalingLimit scaling_limit;
};
// The furthest first; empty if the goal is reached as configured.
std::vector<ScalingAdvice> scaling_advice(const StepProfile&, const Interconnect&, const ScalingGoal&);

struct ScalingForecast {
  StepProfile shape;
  Interconnect interconnect;  // of the predictions
  std::vector<int> ranks;     // rows of the tables
  double efficiency = 0.9;    // required
  Interconnect of_run;        // as the run's own all-reduces show it; checks the model against the run itself
  std::string links;          // where the constants of `interconnect` come from
};
// The result in one line, then the tables and what they rest on.
std::string report(const ScalingForecast&);
std::string report_json(const ScalingForecast&);

}  // namespace millrace
