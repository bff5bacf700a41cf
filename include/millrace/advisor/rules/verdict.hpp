// Verdict: what bounds a run, and what to change. Pure functions: from what was measured to findings, by one table of
// rules. A gain is what a trial measured, or else a bound from measured time; none is taken from a table.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// Parts of a run that do not overlap, but for startup, which is outside of the steps.
enum class Bound { input, copy, sums, imbalance, checkpoint, evaluation, host, compute, startup };
inline constexpr int bound_count = 9;
const char* name_of(Bound);  // "input-bound", ...

// What a run was told, and what `auto` came to, on rank 0.
struct ResolvedConfig {
  int ranks = 1, workers = 0, cores = 1, threads = 1;  // the last three: of a rank
  int prefetch = 0;                                    // 0: the ring deepens by itself
  int accumulation = 1;
  bool gpu = false, chunked = false, graph = true, overlap = true;
  bool zero = false;            // each rank updates its share of the weights
  bool balanced = false;        // train.balance is not even
  bool oversubscribed = false;  // a host has more ranks than cores
  bool half = false;            // numbers of 16 bits are computed as such, not emulated
  std::string precision, grad_dtype, reader, shuffle, cache, checkpoint_every;
  std::string stored;     // how samples are encoded, where own reads decode them: "gzip", "JPEG or PNG"; empty: not
  std::string of_values;  // what a sample is made of as it is copied: "u8"
  int value_bytes = 1;    // of one
  int fusion = -1, most_fusion = 0;  // the level that was asked for, -1: the usual; the last there is
  std::string misplaced;             // what is wrong with the cores that ranks were given; empty: nothing
  std::uint64_t bucket = 0, chunk_cache = 0, sample_bytes = 0;
  std::int64_t global_batch = 0, micro_batch = 0, chunk_rows = 0;
};

// What rules go by: seconds of a step, from an account or, probed, from steps with a part left out.
struct BottleneckMetrics : ResolvedConfig {
  bool probed = false;
  double step = 0;                                  // as it is
  double without_input = 0;                         // with samples that are there at once
  double without_sums = 0;                          // and with ranks that do not sum
  double late = 0;                                  // of the sums' time: until the last rank was there
  double copy = 0;                                  // for copies to the device that the step waits for
  double copy_rate = 0;                             // bytes/s of one, on the rank where it takes longest; 0: not known
  double optimizer = 0;                             // of computing: the optimizer's
  double imbalance = 0;                             // for a rank that is slower than the others
  double uneven = 0;                                // of computing, that shares as fast as the ranks would spare
  double checkpoint = 0, evaluation = 0, host = 0;  // besides the step; in it, neither computing nor waiting for ranks
  double batch = 0;                                 // samples of a step
  double loader_rate = 0;                           // samples/s that the loaders can deliver
  double decoding = 0;                              // share of the loaders' time; the rest is reading
  double depth = 0;                                 // batches that were ready when one was taken
  double decodes = 0;                               // of a chunk, for each time that its rows are read once
  double wall = 0, startup = 0;                     // of the run
  double steps = 0;
  int checkpoints = 0, needed_checkpoints = 0, evaluations = 0;  // as RankAccount
  double clock = 1;                     // share of its top clock that the slowest device ran at
  std::string slowed;                   // why
  double preempted = 0;                 // times a second that a rank lost a core
  CoreContention taken;                 // of the rank that they were taken from most
  double flops = 0, peak_flops = 0;     // of a step; a second, at best; of a rank
  double without_optimizer = 0;         // probed: as without_sums, and the weights do not change
  double gradient_bytes = 0;            // float32; 0: not known
  double sum_alone = 0;                 // probed: seconds of a sum of all with nothing beside it; 0: one rank
  double memory = 0, memory_limit = 0;  // bytes that are planned, of those that may be; of a rank
  NetworkLink link;                     // the fastest one between ranks; no rate where it is not known
  double link_rate = 0;                 // bytes/s that long sums have; 0: there were none
  std::string pcie, top_pcie;           // a GPU's link to its host that is slower than both allow
  Straggler slow;

  bool contended() const { return taken.share() > 0.15; }  // by other work on the cores

  // link and link_rate, from a rank's sums: between hosts the fastest way out of its own, on a single one the GPU's
  // NVLinks.
  void set_link(int hosts, const RankAccount&);
  // slow, imbalance and uneven, from the time that all ranks took for the same steps. Probed: what a rank waits longer
  // for samples is not counted again.
  void set_straggler(const std::vector<RankAccount>&);
  // preempted, taken, copy_rate, clock, slowed and both of PCI Express: the worst of all ranks.
  void set_machine(const std::vector<RankAccount>&);
  double share(Bound) const;  // of the time of a step with all that comes with it; startup: of the run
  double recoverable(
      Bound) const;  // of that what changes against it can spare: no other way of summing brings a late rank
};
BottleneckMetrics bottleneck_metrics_of(const Account&, const ResolvedConfig&);
// What takes most besides computing where that is worth stating, else compute.
Bound largest_bound(const BottleneckMetrics&);

// A change of one key that may help.
struct Change {
  Bound bound = Bound::input;  // what it is against
  std::string key, from, to;
  std::string caution;        // what else it changes; empty: the results of training stay as they are
  double min_gain = 1.05;     // below it it is not worth it, or noise
  std::string evidence = {};  // what was measured that speaks for it
};

using Values = std::vector<std::string>;
struct Rule {
  Bound bound;
  const char* key;
  std::string (*from)(const BottleneckMetrics&);
  Values (*to)(const BottleneckMetrics&);             // none: it does not apply
  std::string (*evidence)(const BottleneckMetrics&);  // what was measured that speaks for it
  enum class Proof {
    trial,  // by running with the change; without one its bound is stated where waiting is what it is against
    time,   // by the time that was measured: it cannot be tried in a few steps
    hint    // by none: it is only pointed at
  } proof = Proof::trial;
  const char* caution = "";
  double min_gain = 1.05;
  // By time alone; of what a trial would tell, the bound. Null: at most all that its bound takes.
  double (*gain)(const BottleneckMetrics&) = nullptr;
};
const std::vector<Rule>& rules();

// Those that apply against what takes a share of the step worth it, to be tried.
std::vector<Change> changes_to_try(const BottleneckMetrics&);

struct Trial {
  Change change;
  double step = 0;            // seconds, measured with the change, for as many samples as beside
  double baseline = 0;        // seconds as configured, measured next to it
  std::string failure;        // it did not run; the reason
  int turns = 0, faster = 0;  // of being measured again, by turns with the run as configured; in so many it was faster
  bool is_significant() const { return faster * 5 >= turns * 4; }  // else it is the machine's noise
};

struct Finding {
  Bound bound = Bound::input;
  double gain = 1;       // predicted speed over today's
  bool at_most = false;  // the bound of it, not the prediction
  bool of_all = false;   // and that of all that the bound takes, not of the change alone
  std::string evidence;  // measured
  std::string advice;    // "data.workers 1 -> 3"
  std::string caution;
};
// The largest gain first; only what stands out of the noise.
std::vector<Finding> findings(const BottleneckMetrics&, const std::vector<Trial>& = {});

// What applies, but nothing measured says how much it would give.
struct Hint {
  std::string advice, evidence, caution;
};
std::vector<Hint> hints(const BottleneckMetrics&);
// One line first: the bound, by how much, what to change and what it gives; then the other findings, the hints and all
// trials.
std::string verdict(const BottleneckMetrics&, const std::vector<Trial>& = {});

}  // namespace millrace
