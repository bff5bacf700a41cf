// What happened to the files of the training data: read errors, and copies in a node-local cache.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct FileFaults {
  std::string path;
  std::uint64_t retries = 0;          // reads that were retried
  std::uint64_t skipped_samples = 0;  // unreadable samples; they do not count in the loss
  bool slow = false;                  // a read took longer than data.slow_read
  std::string error;                  // the first one
};

struct FaultStats {
  std::uint64_t retries = 0, skipped_samples = 0;  // of all files
  std::vector<FileFaults> files;                   // those with any fault
};

// The node-local cache (data.cache) of one rank.
struct LocalCacheStats {
  std::uint64_t files = 0, bytes = 0;                  // of the data set; 0 files: no cache is configured
  std::uint64_t files_staged = 0, bytes_staged = 0;    // that this rank reads from copies
  std::uint64_t bytes_copied = 0;                      // by this rank
  std::uint64_t bytes_reused = 0;                      // that an earlier run had copied
  std::uint64_t samples = 0, samples_from_copies = 0;  // read
  std::string stopped;                                 // why not all files are copied; empty: all are, or will be
};

}  // namespace millrace
