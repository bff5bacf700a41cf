// What the loader costs: random samples through the Loader, by each engine, against bare loops that read the same file
// with as much memory, in one process, by turns. From the page cache, and from the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/data/load/loader.hpp"
#include "millrace/device/device.hpp"

namespace millrace {

struct LoaderBenchOptions {
  std::filesystem::path folder;  // for the file, which goes afterwards; empty: the system's temporary folder
  int workers = 2, prefetch = 16, repeats = 7;
  std::int64_t sample_bytes = 3072, rows = 65536, micro_batch = 128;
  std::int64_t samples = 400000, cold_samples = 30000;  // a turn
  // rows and samples lowered to files of 2 GiB, and turns of 8 GiB (from the disk 1 GiB).
  LoaderBenchOptions bounded() const;
};

// Medians over the turns.
struct LoaderBenchRow {
  std::string name;
  double samples_per_second = 0, gb_per_second = 0;
  double ratio = 0;  // median of this / the best of the bare loops, each by its own turn; 0: a bare loop
};

struct LoaderBench {
  std::vector<LoaderBenchRow> cached;  // the first is the bare loop
  std::vector<LoaderBenchRow> cold;    // first the bare loops, by O_DIRECT; empty where the folder has none
  std::string cold_skipped_reason;     // why
  std::string str() const;
};

LoaderBench bench_loader(Device&, const LoaderBenchOptions&);

// Steps that sleep 1.2 times as long as the loader just needed for a micro-batch, and how long they wait for data all
// the same: the loader's own delays, and those of the machine. By turns.
struct WaitRow {
  double target_step = 0, step = 0;      // seconds: what a step was meant to take, and took
  double rate = 0;                       // samples/s that the loader delivers to steps of no time
  double wait_fixed = 0, wait_auto = 0;  // shares of the time, with the ring asked for and with one that grows
  int turns_fixed = 0, turns_auto = 0;   // that count: the workers were as quick as that; 0: all do
};
struct WaitBench {
  std::vector<WaitRow> rows;
  int turns = 0, prefetch = 0, workers = 0;
  std::int64_t bytes = 0;  // of a micro-batch
  std::string str() const;
};
// steps: seconds; turn_seconds: of each loader's turn, at least.
WaitBench bench_waits(Device&, const LoaderBenchOptions&, const std::vector<double>& steps, double turn_seconds = 2);

// What decoding of encoded images costs: by one thread, images in memory, decoded whole and as far as samples need;
// then random samples through the Loader, from the page cache. By turns; medians, in samples a second.
struct ImageBench {
  std::string what;  // of the images
  double whole = 0, needed = 0, loader = 0;
  int workers = 0;
  std::string str() const;
};
ImageBench bench_images(Device&, const ShardIndex&, int workers, int prefetch, int repeats);

// What the parts of a loader reach by themselves with its samples, in its order, with its workers, in samples a second:
// medians of turns. Bare loops do a part alone.
struct StageRates {
  double baseline_read = 0;     // what is stored, read into memory; 0: HDF5 alone can read it
  double baseline_decode = 0;   // what is in memory, decoded; 0: values are stored as they are
  double engine = 0;            // read and decoded by the source, without a ring and a consumer
  double loader = 0;            // the same in the ring's order to a consumer that does nothing
  double stored_bytes = 0;      // that are read for a sample
  std::string baseline_method;  // "pread by 2 threads"
  double wait_share =
      0;  // of its time that a step waits for data, where it takes 1.2 times as long as the loader needs
  bool fully_cached = false;  // every chunk is decoded once and kept
};
StageRates bench_stages(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&, int repeats,
                        double turn_seconds = 0.5);

}  // namespace millrace
