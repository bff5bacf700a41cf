// Accelerators that only sleep, fed by the real Loader from generated shards: whether storage and loader keep up with
// published training workloads, without an accelerator. Parameters and metric are those of MLPerf Storage and of DLIO,
// its benchmark program; figures are unofficial: another loader, another format and far less data than its rules ask
// for.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/device/device.hpp"

namespace millrace {

struct StorageWorkload {
  std::string name, accelerator;  // "resnet50", "h100"
  std::int64_t sample_bytes = 0;  // the published mean; all samples are of this size here
  std::int64_t batch = 0;         // samples a step and accelerator
  double compute_seconds = 0;     // of a step
  double pass_utilization = 0;    // accelerator utilization from which on a submission counts
};
// Error(config) where none is published, naming those that are.
StorageWorkload storage_workload(const std::string& name, const std::string& accelerator);

struct StorageBenchOptions {
  StorageWorkload workload;
  int accelerators = 1;      // over all ranks, as even as may be
  std::int64_t samples = 0;  // of the data set; 0: 2 GiB, and four steps at least
  int steps = 0;             // a turn; 0: ten seconds of them, between 20 and 2,000
  int turns = 3;             // each: the ceiling, then the replay
  int workers = 1;           // loader threads an accelerator
  int prefetch = 0;          // micro-batches read ahead, an accelerator; 0: what 128 MiB hold, between 3 and 32
  Reader reader = Reader::uring;
  std::filesystem::path folder;  // of the shards; empty: a new one in the system's temporary folder
  bool keep = false;             // shards stay; those found are used, and stay in any case
};

// One turn of all accelerators; shares of 1.
struct Utilization {
  // Sum of measured compute / run time, mean over accelerators: DLIO's compute_metrics_train. The first step counts in
  // neither, the waits of the accelerators for each other after every step in the run time.
  double measured = 0;
  double nominal = 0;             // the same with the published compute time instead of the timer's, which oversleeps
  double data_wait = 0;           // of the run time, in Loader::next()
  double samples_per_second = 0;  // of all accelerators
};

struct StorageBench {
  StorageBenchOptions options;               // as resolved
  std::string source;                        // what read the shards
  std::string cached;                        // what is known of caches
  bool realtime_scheduling = false;          // this rank's accelerators were of the real-time class
  double baseline_bytes_per_second = 0;      // of random samples by the best of some bare loops; median of turns
  std::vector<Utilization> ceiling, replay;  // by turns; of the ceiling, batches are there at once and nothing is read
  // Median over turns of one's share of the ceiling's in the same turn.
  double relative(double Utilization::*) const;
  std::string str() const;
};

// Collective. Error(config): too little memory, files that the reader cannot read; Error(data): too little space.
StorageBench bench_storage(World&, Device&, const StorageBenchOptions&);

}  // namespace millrace
