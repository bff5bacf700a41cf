// Benchmarks of the loader. Most of them compare random samples through the Loader, for each engine, with baseline
// loops that read the same file with as much memory. Both run in one process and alternate, so that a slow moment of
// the machine affects both. A round measures each of them once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/data/load/loader.hpp"
#include "millrace/device/device.hpp"

namespace millrace {

struct LoaderBenchOptions {
  std::filesystem::path folder;  // for the file, which is removed afterwards; empty: the system's temporary folder
  int workers = 2, prefetch = 16, repeats = 7;
  std::int64_t sample_bytes = 3072, rows = 65536, micro_batch = 128;
  std::int64_t samples = 400000, cold_samples = 30000;  // per round
  // The same with rows and samples limited: files of 2 GiB, rounds of 8 GiB (1 GiB if read from the disk).
  LoaderBenchOptions bounded() const;
};

// Medians over the rounds.
struct LoaderBenchRow {
  std::string name;
  double samples_per_second = 0, gb_per_second = 0;
  double ratio = 0;  // median over rounds of this rate / that of the fastest baseline loop; 0: this is a baseline loop
};

struct LoaderBench {
  std::vector<LoaderBenchRow> cached;  // from the page cache; the first is the baseline loop
  std::vector<LoaderBenchRow> cold;    // from the disk; the baseline loops by O_DIRECT come first
  std::string cold_skipped_reason;     // why `cold` is empty: O_DIRECT cannot be used
  std::string str() const;
};

LoaderBench bench_loader(Device&, const LoaderBenchOptions&);

// An epoch of random samples from one generated HDF5 file, with the reader that data.reader = auto chooses. With the
// defaults, the data and batches of the table of file formats in the LUMI AI guide: 100,000 images of 3x64x64 float32.
struct EpochBenchOptions {
  std::filesystem::path folder;  // for the file, which is removed afterwards; empty: the system's temporary folder
  int workers = 1, prefetch = 16, repeats = 3;
  std::int64_t samples = 100000, sample_bytes = 3 * 64 * 64 * 4, batch = 32;
};
struct EpochBench {
  EpochBenchOptions options;
  std::string reader;
  double first = 0;     // seconds of the first epoch, from the disk as far as the kernel drops the file from its cache
  double cached = 0;    // of later epochs; median
  double baseline = 0;  // a pread loop with as many threads, after that; median
  // Of epochs by the reader uring; median. 0: the file system has no O_DIRECT, or `reader` is uring.
  double past_cache = 0;
  std::string str() const;
};
// Error(data): too little disk space.
EpochBench bench_epoch(Device&, const EpochBenchOptions&);

// How long steps wait for data although the loader is fast enough on average: the steps sleep 1.2 times as long as the
// loader has just needed for a micro-batch. The rest are delays of the loader and of the machine.
struct WaitRow {
  double target_step = 0, step = 0;  // seconds: the intended duration of a step, and the actual one
  double rate = 0;                   // samples/s that the loader delivers to steps without work
  // Fraction of the time spent waiting: with the given prefetch, and with prefetch = 0 (automatic).
  double wait_fixed = 0, wait_auto = 0;
  int turns_fixed = 0, turns_auto = 0;  // rounds in which the workers were fast enough to count; 0: all rounds count
};
struct WaitBench {
  std::vector<WaitRow> rows;
  int turns = 0;  // rounds
  int prefetch = 0, workers = 0;
  std::int64_t bytes = 0;  // of a micro-batch
  std::string str() const;
};
// steps: intended durations in seconds. turn_seconds: minimum duration of each measurement in a round.
WaitBench bench_waits(Device&, const LoaderBenchOptions&, const std::vector<double>& steps, double turn_seconds = 2);

// The cost of decoding encoded images, in samples/s, medians over rounds. One thread decodes images in memory, complete
// and only as far as the samples need them. Then random samples pass through the Loader, from the page cache.
struct ImageBench {
  std::string what;  // describes the images
  double complete = 0, needed = 0, loader = 0;
  int workers = 0;
  std::string str() const;
};
ImageBench bench_images(Device&, const ShardIndex&, int workers, int prefetch, int repeats);

// The rates in samples/s that the stages of a loader reach by themselves, with its samples, order and number of
// workers: medians over rounds. Baseline loops do one stage without an engine.
struct StageRates {
  double baseline_read = 0;     // reads the stored bytes into memory; 0: only the HDF5 library can read them
  double baseline_decode = 0;   // decodes bytes in memory; 0: the values are stored without encoding
  double engine = 0;            // the source reads and decodes, without a ring and a consumer
  double loader = 0;            // the same through the ring to a consumer that does nothing
  double stored_bytes = 0;      // read for each sample
  std::string baseline_method;  // "pread by 2 threads"
  // Fraction of the time that steps wait for data if they take 1.2 times as long as the loader needs.
  double wait_share = 0;
  bool fully_cached = false;  // all decoded chunks stay in the cache, so nothing is decoded any more
};
// turn_seconds: duration of each measurement in a round. Error(config): the data set is synthetic.
StageRates bench_stages(Device&, Source&, const ShardIndex&, const Sampler&, const LoaderOptions&, int repeats,
                        double turn_seconds = 0.5);

}  // namespace millrace
