// BottleneckMetrics: everything that the rules of the verdict read. It is a plain value. It comes from the account of a
// finished run (bottleneck_metrics_of) or from a probe, which runs steps with one part disabled (advisor/trials).
#pragma once
#include <string>
#include <vector>

#include "millrace/advisor/rules/resolved_config.hpp"
#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// What can limit a run. All but startup are disjoint parts of the time of a step; startup is a part of the run.
enum class Bound { input, copy, communication, imbalance, checkpoint, evaluation, host, compute, startup };
inline constexpr int bound_count = 9;
const char* name_of(Bound);  // "input-bound", "communication-bound", ...

struct BottleneckMetrics {
  // Seconds per step. Evaluation and checkpoints happen between steps; their time is divided by the number of steps.
  struct StepTimes {
    double step = 0;                  // the whole step, as configured
    double copy = 0;                  // waiting for copies to the device
    double optimizer = 0;             // the optimizer's part of computing
    double imbalance = 0;             // waiting for a rank that is slower than the others
    double balance_gain_seconds = 0;  // computing time that a split proportional to the ranks' speed would save
    double late_rank_wait = 0;        // part of the communication time: waiting until the last rank arrived
    double host = 0;                  // on the host: neither computing nor waiting for other ranks
    double checkpoint = 0, evaluation = 0;
  };

  // Seconds of a step with parts disabled. Each row also leaves out what the rows before it leave out.
  struct StepTimesWithout {
    double input = 0;          // samples are already in memory
    double communication = 0;  // and gradients are not all-reduced
    double optimizer = 0;      // and weights are not updated; only a probe measures this
  };

  struct InputPath {
    double loader_rate = 0;        // samples/s that the loaders of all ranks can deliver together
    double decoding_share = 0;     // share of the workers' time that decoding takes; the rest is reading
    double mean_queue_depth = 0;   // batches that were ready when the step took one, on average
    double decodes_per_chunk = 0;  // how often a chunk is decoded per pass over its rows
    double copy_rate = 0;          // bytes/s of a single copy to the device, on the slowest rank; 0: not known
  };

  struct Communication {
    double gradient_bytes = 0;      // as float32; 0: not known
    double all_reduce_seconds = 0;  // probe: an all-reduce of the whole gradient with nothing else running; 0: one rank
    NetworkLink link;               // the fastest link between the ranks; its rate is 0 where it is not known
    double link_rate = 0;           // bytes/s that long all-reduces reach on it; 0: there were none
  };

  struct Computing {
    double flops_per_step = 0;  // of one rank
    double peak_flops = 0;      // FLOP/s of one rank's device at best
  };

  struct Memory {
    double planned = 0, limit = 0;  // bytes of one rank
  };

  struct Machine {
    double clock_share = 1;           // of its maximum clock that the slowest device ran at
    std::string throttle_reason;      // why it ran below; empty: it was not throttled
    double preempted_per_second = 0;  // how often a rank lost a core to other work
    CoreContention contention;        // of the rank with the most contended cores
    std::string pcie, max_pcie;       // a GPU link below what GPU and host allow: "generation 3 x4"; empty: none
    bool contended() const { return contention.share() > 0.15; }
  };

  struct RunTotals {
    double steps = 0;
    double batch = 0;  // samples of a step
    double wall_seconds = 0, startup_seconds = 0;
    int checkpoints = 0, needed_checkpoints = 0, evaluations = 0;  // as in RankAccount
  };

  ResolvedConfig config;
  bool probed = false;  // a probe measured the times; otherwise they come from the account of a run
  StepTimes times;
  StepTimesWithout without;
  InputPath input;
  Communication communication;
  Computing computing;
  Memory memory;
  Machine machine;
  RunTotals run;
  Straggler straggler;

  // Fills link and link_rate from the collectives of one rank. Between hosts the link is the host's fastest network
  // link; on a single host it is the GPU's NVLinks.
  void set_link(int hosts, const RankAccount&);
  // Fills straggler, imbalance and balance_gain_seconds from the times that all ranks took for the same steps. In a
  // probe, what a rank waits longer for samples is not counted twice.
  void set_straggler(const std::vector<RankAccount>&);
  // Fills the machine part and copy_rate with the worst value of all ranks.
  void set_machine(const std::vector<RankAccount>&);

  // The part of a step's time, with its checkpoints and evaluation, that a bound takes: 0 to 1. Startup: of the run.
  double share(Bound) const;
  // The part of share() that a change against this bound can save. No communication setting makes a late rank arrive
  // earlier, so late_rank_wait does not count.
  double recoverable(Bound) const;
};

BottleneckMetrics bottleneck_metrics_of(const Account&, const ResolvedConfig&);

}  // namespace millrace
