// What a step would take on other numbers of ranks: pure functions from the figures of a finished run, and a model of
// the links between ranks, to a step that is simulated. docs/scaling.md has the formulas, their sources, and what is
// assumed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

// A message of n bytes takes latency + n / bytes_per_second.
struct LinkModel {
  double bytes_per_second = 0;  // each way; 0: takes no time
  double latency = 0;           // seconds
};

// How ranks are connected: nodes by `far`, which the ranks of a node share, those of a node by `near`.
struct Interconnect {
  LinkModel far, near;
  int ranks_per_node = 1;
  bool ring = false;  // messages one after the other: 2 (p - 1) of them; else 2 log2 p
};

// Until every rank has the sum of so many bytes of each.
double all_reduce_seconds(double bytes, int ranks, const Interconnect&);
// Until every rank has its part of the sum; or until parts are gathered on all: half of it.
double reduce_scatter_seconds(double bytes, int ranks, const Interconnect&);

struct AllReduceTime {
  double bytes = 0, seconds = 0;
};
// The link that makes these sums over so many ranks take so long: least squares of relative errors, no part below zero.
// The latency is known only from sums of different sizes.
LinkModel fit_link(const std::vector<AllReduceTime>&, int ranks, bool ring);

// The longest of so many draws, expected, when each is one of these.
double expected_longest(const std::vector<TimeBin>&, double draws);

// A measured step, and what of the configuration it goes by. Seconds of a step, as StepTimingStats has them.
struct StepProfile {
  int ranks = 1, micro_batches = 1;  // of the run; a rank's
  double samples = 0;                // over all ranks
  double step = 0;                   // as it was, with all waits
  double input = 0, forward = 0, backward = 0, last_backward = 0, optimizer = 0, other = 0;
  std::vector<ReadyBytes> ready;
  std::vector<TimeBin> own;
  double stats_bytes = 0, bucket_bytes = 8 << 20;
  int element_bytes = 4;  // of a gradient as it travels; those of `ready` have 4
  bool overlap = true, beside = true, meets = true;
  bool zero = false;               // optim.zero = 1
  bool fixed_micro_batch = false;  // else a rank's share of the batch is one
};
// Means over the ranks; the configuration's part is left as it is by default. Error(data) without paces.
StepProfile step_profile_of(const Account&);
// The mean sum of each bucket; with ZeRO each is half of one.
std::vector<AllReduceTime> all_reduce_times(const Account&, bool zero);

enum class Scaling { weak, strong };  // samples a rank stay the same; samples a step do

struct Prediction {
  int ranks = 1;
  double samples = 0;     // of a step
  double step = 0;        // seconds, as all that follow
  double own = 0;         // input, computing and the rest, of a rank as they are on average
  double straggling = 0;  // how much longer the slowest rank takes
  double sums = 0;        // the links are busy
  double exposed = 0;     // of which the step waits
  double meeting = 0;     // for what the ranks agree on after the step
  bool hides = true;      // all sums end during the backward pass, but those of the last gradients
  double efficiency = 1;  // samples a second, by those of as many ranks that do nothing together
};
Prediction predict(const StepProfile&, const Interconnect&, int ranks, Scaling);

// How far it goes at an efficiency.
struct ScalingLimit {
  int ranks = 1;          // the most of those asked for, up to which none falls below
  double efficiency = 1;  // there
  int fails_at = 0;       // the first that does; 0: none
  int hides_to = 1;       // the most up to which sums hide
};
ScalingLimit scaling_limit(const StepProfile&, const Interconnect&, const std::vector<int>& ranks, Scaling,
                           double efficiency);

// A change of one key, or ranks of equal speed, with which it goes further.
struct ScalingAdvice {
  std::string change;  // "comm.grad_dtype = bf16"
  ScalingLimit scaling_limit;
};
std::vector<ScalingAdvice> scaling_advice(const StepProfile&, const Interconnect&, const std::vector<int>& ranks,
                                          Scaling, double efficiency);

struct ScalingForecast {
  StepProfile shape;
  Interconnect interconnect;
  std::vector<int> ranks;   // those of the table
  double efficiency = 0.9;  // that is asked for
  Interconnect of_run;      // as its own sums had them, whatever else is asked for: the model against the run itself
  std::string links;        // where the constants are from
};
std::string report(const ScalingForecast&);       // what matters in a line, then the tables and what they rest on
std::string report_json(const ScalingForecast&);  // the same

}  // namespace millrace
