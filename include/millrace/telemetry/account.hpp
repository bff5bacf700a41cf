// Account: where the time of all ranks went. A plain value, built from every rank's figures; printed and written to
// summary.json.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/telemetry/device_time.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {

struct LoaderFigures {
  std::uint64_t batches = 0, bytes_read = 0, queue_depth_sum = 0;  // queue depth: filled slots seen at each next()
  std::uint64_t chunks_decoded = 0;
  double wait_seconds = 0, read_seconds = 0;  // consumer's wait; sum of the workers' reading time
};

// What went wrong with files, and what was done.
struct FileFaults {
  std::string path;
  std::uint64_t retries = 0, skipped_samples = 0;
  bool slow = false;  // a read took longer than data.slow_read
  std::string error;  // the first
};
struct FaultFigures {
  std::uint64_t retries = 0, skipped_samples = 0;  // reads tried again; samples read as "counts for nothing"
  std::vector<FileFaults> files;                   // those with any
};

// Copies of files near the node, and how much was read from them.
struct StagingFigures {
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
  LoaderFigures loader;
  FaultFigures faults;           // of the training data
  StagingFigures staging;        // the same; no files: none is wanted
  double comm_busy_seconds = 0;  // time in sums, hidden or not
  std::uint64_t comm_bytes = 0, steps = 0, samples = 0, memory_bytes = 0;
  DeviceTime device;     // of the steps that were traced; none on a device that tells nothing
  HealthFigures health;  // the same

  // From Account{{one}}.json(): how ranks send theirs.
  static RankAccount from_json(const std::string&);
};

struct Account {
  std::vector<RankAccount> ranks;
  std::string table() const;  // phases by minimum, median, maximum over ranks and share of the wall time
  std::string json() const;   // the same as a JSON object
};

}  // namespace millrace
