// Account: where the time of all ranks went. A plain value, built from every rank's figures; printed and written to
// summary.json.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/collective_op.hpp"
#include "millrace/system/network_link.hpp"
#include "millrace/system/process.hpp"
#include "millrace/telemetry/device_time.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

// Of own reads, by all threads so far: chunks, and the time that decoding took, of images too.
struct DecodeStats {
  std::uint64_t chunks = 0;
  double seconds = 0;
};

struct LoaderStats {
  std::uint64_t batches = 0, samples = 0, bytes_read = 0;
  std::uint64_t queue_depth_sum = 0;             // queue depth: filled slots seen when a batch is taken
  std::array<std::uint64_t, 17> queue_depths{};  // how often so many were; the last: or more
  double wait_seconds = 0, read_seconds = 0;     // consumer's wait; sum of the workers' reading (and decoding) time
  DecodeStats decoded{};                         // its seconds are part of those
  double room_seconds = 0;                       // sum of the workers' waits for a free slot
  double copy_seconds = 0;                       // of some copies to the device, by its own clock
  std::uint64_t copied_bytes = 0, copied_samples = 0;  // by these
  double first_batch_seconds = 0;                      // from the loader's start to its first batch
  int workers = 0;                                     // 0: the step reads by itself
  std::uint64_t clock_reads = 0;                       // for these figures
  // Samples/s that the workers could deliver, if none ever waited for room.
  double capacity() const;
  // Bytes/s and samples/s of a copy by itself; 0: there are none.
  double copy_bytes_rate() const { return copy_seconds > 0 ? double(copied_bytes) / copy_seconds : 0; }
  double copy_rate() const { return copy_seconds > 0 ? double(copied_samples) / copy_seconds : 0; }
  double decoding() const { return read_seconds > 0 ? decoded.seconds / read_seconds : 0; }  // share of reading
  double sample_bytes() const { return samples > 0 ? double(bytes_read) / double(samples) : 0; }
  double mean_depth() const { return batches ? double(queue_depth_sum) / double(batches) : 0.0; }
};

// Of one optimizer step after the other.
struct StepTimeStats {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, longest = 0;  // seconds
};
struct TimeBin {
  double seconds = 0;
  std::uint64_t count = 0;
};
// Percentiles in a fixed number of bins, each 1 % wide.
class StepTimeHistogram {
 public:
  void add(double seconds);
  StepTimeStats stats() const;
  std::vector<TimeBin> bins() const;  // those with any, by time; the middle of each

 private:
  static double middle_of(std::size_t bin);
  static constexpr int per_octave = 64, octaves = 40;  // from 1 ns
  std::array<std::uint64_t, per_octave * octaves> bins_{};
  std::uint64_t count_ = 0;
  double sum_ = 0, longest_ = 0;
};

// One operation on one bucket (tag from 0), or on something else (below 0), over all steps.
struct CollectiveOpStats {
  int tag = 0;
  std::uint64_t times = 0, bytes = 0;  // bytes of all
  // Sums of seconds: between being ready and all ranks being there, being summed, and of the latter while the step
  // waited for it.
  double queued = 0, busy = 0, exposed = 0;
  CollectiveOp op = CollectiveOp::all_reduce;
  // Sums of seconds from a step's begin on: until it was ready, and until the step needed it. It starts at ready +
  // queued and ends at that + busy.
  double ready = 0, needed = 0;
  // Bytes/s on the bus, as a ring of so many ranks would send them.
  double bus_rate(double ranks) const { return busy > 0 ? bus_factor(op, ranks) * double(bytes) / busy : 0; }
};

// Of full steps after the first ones, what a prediction goes by: means, in seconds of a step.
struct ReadyBytes {
  std::uint64_t bytes = 0;  // of the float32 gradient, from its end
  double seconds = 0;       // from the begin of the last backward pass until they are final; sums in between left out
};
struct StepTimingStats {
  std::uint64_t steps = 0;
  double step = 0;
  double input = 0, forward = 0, backward = 0, optimizer = 0;  // over all micro-batches
  double last_backward = 0;                                    // of the last micro-batch
  double input_pass = 0;                                       // of forward, for one sample; 0: the network has none
  double sums = 0, meeting = 0;  // waits for large sums; for what the ranks agree on after a step
  double other = 0;              // the rest of the step
  int micro_batches = 1;
  double samples = 0;             // over all ranks
  std::uint64_t stats_bytes = 0;  // batch statistics that are summed besides
  bool beside = true;             // sums go on beside the backward pass: a GPU, or a thread of their own
  bool meets = true;              // no step begins before the ranks have agreed after the one before
  std::vector<ReadyBytes> ready;  // the last: all
  std::vector<TimeBin> own;       // of steps without both waits for ranks
};

// fp16: the loss scale from a step on.
struct LossScaleChange {
  std::int64_t step = 0;
  double scale = 1;
};
// From the first step to the last, in bounded memory.
class LossScaleStats {
 public:
  static constexpr std::size_t most_kept = 64;
  LossScaleStats() = default;
  LossScaleStats(std::vector<LossScaleChange> kept, std::uint64_t changes)
      : kept_(std::move(kept)), changes_(changes) {}
  void add(std::int64_t step, double scale);  // of each step
  // The first step's, then those after each change; of too many the first half of most_kept and the last.
  const std::vector<LossScaleChange>& kept() const { return kept_; }
  std::uint64_t changes() const { return changes_; }  // all of them
  double last() const { return kept_.empty() ? 1 : kept_.back().scale; }

 private:
  std::vector<LossScaleChange> kept_;
  std::uint64_t changes_ = 0;
};

// What went wrong with files, and what was done.
struct FileFaults {
  std::string path;
  std::uint64_t retries = 0, skipped_samples = 0;
  bool slow = false;  // a read took longer than data.slow_read
  std::string error;  // the first
};
struct FaultStats {
  std::uint64_t retries = 0, skipped_samples = 0;  // reads tried again; samples read as "counts for nothing"
  std::vector<FileFaults> files;                   // those with any
};

// Copies of files near the node, and how much was read from them.
struct LocalCacheStats {
  std::uint64_t files = 0, files_staged = 0, bytes = 0, bytes_staged = 0;  // of the set; that this rank reads near
  std::uint64_t bytes_copied = 0, bytes_reused = 0;                        // by this rank; found there from before
  std::uint64_t samples = 0, samples_from_copies = 0;
  std::string stopped;  // why not all are there; empty: nothing stands against it
};

// One rank's figures.
struct RankAccount {
  std::string host;
  double wall_seconds = 0;
  std::array<double, phase_count> seconds{};
  LoaderStats loader;
  FaultStats faults;                                                       // of the training data
  LocalCacheStats staging;                                                 // the same; no files: none is wanted
  double comm_busy_seconds = 0;                                            // time in sums, hidden or not
  std::uint64_t comm_bytes = 0, steps = 0, samples = 0, memory_bytes = 0;  // samples: of all ranks
  StepTimeStats step_times;
  std::vector<CollectiveOpStats> sums;  // by tag and operation
  StepTimingStats pace;                 // no steps: none was full and late enough
  ProcessStats process;
  NetworkLink network_link;
  int cores = 0, threads = 0;            // this rank's share of the host, and its compute threads
  int checkpoints = 0, evaluations = 0;  // written; run
  int needed_checkpoints = 0;            // of these, whatever checkpoint.every is: of the best so far, and the last
  std::uint64_t skipped_steps = 0;       // overflow
  LossScaleStats scales;                 // none: not fp16, or no step
  double flops = 0;                      // of one step's forward and backward pass on this rank
  double marks = 0, mark_seconds = 0;    // clock reads of a step for this account; what one costs
  double memory_limit = 0;               // bytes that the rank may plan with
  DeviceTime device;                     // of the steps that were traced; none on a device that tells nothing
  DeviceHealthStats health;              // the same

  double first_wait() const;  // seconds that its steps waited for the loader's first batch: once a run
  double demand() const;      // samples/s that its steps could take if they never waited for the loader
  // From Account{{one}}.json(): how ranks send theirs.
  static RankAccount from_json(const std::string&);
};

// What brings samples from the loader into the network, by itself: all ranks' rates together. 0: there is none.
struct InputPathRates {
  double copy_bytes = 0;            // bytes/s
  double copy = 0, input_pass = 0;  // samples/s
};
InputPathRates input_path_rates(const std::vector<RankAccount>&);

struct Account {
  std::vector<RankAccount> ranks;
  std::string table() const;  // phases by minimum, median, maximum over ranks and share of the wall time
  std::string json() const;   // the same as a JSON object
  static Account from_json(const std::string&);
};

}  // namespace millrace
