// What the loader costs: random samples from the page cache through the Loader against a bare loop of preads by as many
// threads, over the same file, in one process, by turns.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/device/device.hpp"

namespace millrace {

struct LoaderBenchOptions {
  std::filesystem::path folder;  // for the file, which goes afterwards; empty: the system's temporary folder
  int workers = 2, prefetch = 4, repeats = 7;
  std::int64_t sample_bytes = 3072, rows = 65536, micro_batch = 128;
  std::int64_t samples = 400000;  // a repeat
};

// Medians over the repeats.
struct LoaderBench {
  double loader_samples_per_second = 0, bare_samples_per_second = 0;
  double loader_gb_per_second = 0, bare_gb_per_second = 0;
  double ratio = 0;  // median of loader / bare, each with its neighbour in time
  std::string str() const;
};

LoaderBench bench_loader(Device&, const LoaderBenchOptions&);

}  // namespace millrace
