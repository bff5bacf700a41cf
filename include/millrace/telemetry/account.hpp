// Account: where the time of all ranks went. It is a plain value, collected from every rank. A run prints it as a table
// and writes it to summary.json.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/system/network_link.hpp"
#include "millrace/system/process.hpp"
#include "millrace/telemetry/collective_op_stats.hpp"
#include "millrace/telemetry/device_health_stats.hpp"
#include "millrace/telemetry/device_time.hpp"
#include "millrace/telemetry/file_stats.hpp"
#include "millrace/telemetry/loader_stats.hpp"
#include "millrace/telemetry/step_stats.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

// What one rank reports.
struct RankAccount {
  std::string host;
  double wall_seconds = 0;
  std::array<double, phase_count> seconds{};  // by Phase; they sum to wall_seconds
  double seconds_in(Phase p) const { return seconds[std::size_t(p)]; }

  // The training data.
  LoaderStats loader;
  FaultStats faults;
  LocalCacheStats staging;

  // Steps.
  std::uint64_t steps = 0, samples = 0;  // samples: of all ranks
  StepTimeStats step_times;
  StepTimingStats pace;             // its `steps` is 0 if the run had no full step after the warm-up
  double flops = 0;                 // of one step on this rank, forward and backward
  std::uint64_t skipped_steps = 0;  // because gradients overflowed
  LossScaleStats scales;            // empty: the run is not fp16, or made no step

  // Communication.
  std::vector<CollectiveOpStats> sums;  // collectives by bucket and operation
  double comm_busy_seconds = 0;         // in collectives, exposed or overlapped
  std::uint64_t comm_bytes = 0;
  NetworkLink network_link;  // the fastest of this host

  // Between steps.
  int checkpoints = 0;  // written for any reason
  // Written because the accuracy was the best so far, or because the run ended. They do not depend on
  // checkpoint.every.
  int needed_checkpoints = 0;
  int evaluations = 0;

  // Machine.
  ProcessStats process;
  int cores = 0, threads = 0;      // that this rank may use; its compute threads
  std::uint64_t memory_bytes = 0;  // planned
  double memory_limit = 0;         // bytes that the plan may use
  DeviceTime device;               // of the traced steps; empty on a device without tracing
  DeviceHealthStats health;        // empty on a device that reports nothing

  // The cost of this account.
  double marks = 0;         // timestamps per step
  double mark_seconds = 0;  // seconds that one timestamp takes

  double first_wait() const;  // seconds that the steps waited for the first batch of the run
  double demand() const;      // samples/s that the steps could consume if they never waited for the loader
  // Reads the text of Account{{rank}}.json(). Ranks send their accounts in this form.
  static RankAccount from_json(const std::string&);
};

// How fast each part of the path from the loader into the network is by itself: the rates of all ranks together. 0: the
// part does not exist or was not timed.
struct InputPathRates {
  double copy_bytes = 0;  // bytes/s of copies to the device
  double copy = 0;        // samples/s of copies to the device
  double input_pass = 0;  // samples/s of the input pass
};
InputPathRates input_path_rates(const std::vector<RankAccount>&);

struct Account {
  std::vector<RankAccount> ranks;
  // For people: the phases with minimum, median and maximum over the ranks and share of the wall time, then the rest.
  std::string table() const;
  std::string json() const;  // an object
  static Account from_json(const std::string&);
};

}  // namespace millrace
