// Tests whether storage and loader keep up with published training workloads, without accelerators: emulated
// accelerators only sleep, and the real Loader feeds them from generated shards. Parameters and metric are those of
// MLPerf Storage and of DLIO, its benchmark program. The results are unofficial: the loader and the format are others,
// and there is far less data than the rules demand.
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
  std::int64_t sample_bytes = 0;  // the published mean; here all samples have this size
  std::int64_t batch = 0;         // samples per step and accelerator
  double compute_seconds = 0;     // of a step
  double pass_utilization = 0;    // minimum accelerator utilization of a valid submission
};
// Error(config): no such workload is published; the message names the ones that are.
StorageWorkload storage_workload(const std::string& name, const std::string& accelerator);

struct StorageBenchOptions {
  StorageWorkload workload;
  int accelerators = 1;      // of all ranks together, split as evenly as possible
  std::int64_t samples = 0;  // of the data set; 0: 2 GiB, but at least four steps
  int steps = 0;             // per round; 0: ten seconds, but between 20 and 2000 steps
  int turns = 3;             // rounds; each measures the ceiling, then the replay
  int workers = 1;           // loader threads per accelerator
  int prefetch = 0;          // ring slots per accelerator; 0: 128 MiB, but between 3 and 32 slots
  Reader reader = Reader::uring;
  std::filesystem::path folder;  // of the shards; empty: a new one in the system's temporary folder
  bool keep = false;             // keeps the shards; shards that were there already are used and always kept
};

// Results of one round of all accelerators. Utilizations are fractions of 1.
struct Utilization {
  // Measured compute time / run time, mean over accelerators, as in DLIO's compute_metrics_train. The first step is
  // left out. The waits of the accelerators for each other after every step are part of the run time.
  double measured = 0;
  double nominal = 0;             // the same with the published compute time; sleeping takes longer than that
  double data_wait = 0;           // fraction of the run time spent in Loader::next()
  double samples_per_second = 0;  // of all accelerators together
};

struct StorageBench {
  StorageBenchOptions options;               // with all defaults resolved
  std::string source;                        // describes the engine that read the shards
  std::string cached;                        // what is known about caching of the shards
  bool realtime_scheduling = false;          // this rank's accelerators had a real-time scheduling class
  double baseline_bytes_per_second = 0;      // random samples by the fastest baseline loop; median over rounds
  std::vector<Utilization> ceiling, replay;  // by round; for the ceiling nothing is read and batches are ready at once
  // Median over rounds of the replay / the ceiling of the same round.
  double relative(double Utilization::*) const;
  std::string str() const;
};

// Collective. Error(config): too little memory, or the engine cannot read the files. Error(data): too little disk
// space.
StorageBench bench_storage(World&, Device&, const StorageBenchOptions&);

}  // namespace millrace
