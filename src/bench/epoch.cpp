// `millrace bench loader --epoch`: an epoch from one HDF5 file.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "bench/baseline_reads.hpp"
#include "bench/shards.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "millrace/base/units.hpp"
#include "millrace/bench/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace {

// From the start of the loader to the last batch.
double epoch_seconds(Device& device, Source& source, const ShardIndex& index, const EpochBenchOptions& o,
                     std::int64_t epoch) {
  const Sampler sampler(index.rows, o.batch, o.batch, 1, true);
  const std::int64_t steps = index.rows / o.batch;
  const double began = steady_seconds();
  auto items = [&, step = std::int64_t(0)]() mutable -> std::optional<MicroBatch> {
    if (step == steps) return std::nullopt;
    return sampler.share(epoch, step++, 0, 1)[0];
  };
  Loader loader(device, source, index, sampler, LoaderOptions{o.workers, o.prefetch, o.batch}, items);
  std::int64_t taken = 0;
  while (const Batch* batch = loader.next()) taken += batch->item.rows;
  const double seconds = steady_seconds() - began;
  MR_CHECK(taken == steps * o.batch, "{} samples of {}", taken, steps * o.batch);
  return seconds;
}

}  // namespace

EpochBench bench_epoch(Device& device, const EpochBenchOptions& o) {
  EpochBench out;
  out.options = o;
  const auto world = solo_world();
  const BenchShards file(*world, o.folder, "epoch", o.samples, o.sample_bytes, false,
                         std::numeric_limits<std::int64_t>::max());
  DataOptions data;
  data.paths = {file.glob()};
  const ShardIndex index = index_shards(*world, data);
  const ReaderFacts facts = reader_facts(index);
  const Reader reader = choose_reader(facts).reader;
  const std::unique_ptr<Source> source = make_source(*world, index, reader);
  out.reader = source->describe();
  out.first = epoch_seconds(device, *source, index, o, 0);
  LoaderBenchOptions bare;
  bare.workers = o.workers;
  bare.prefetch = o.prefetch;
  bare.sample_bytes = o.sample_bytes;
  bare.rows = o.samples;
  bare.micro_batch = o.batch;
  std::vector<double> cached, baseline;
  for (int round = 1; round <= o.repeats; ++round) {
    cached.push_back(epoch_seconds(device, *source, index, o, round));
    baseline.push_back(baseline_pread_seconds(device, index.shards.front().path, bare, std::uint64_t(round),
                                              o.samples / o.batch * o.batch, o.workers, false));
  }
  if (facts.no_direct_io.empty() && reader != Reader::uring) {
    const std::unique_ptr<Source> past_cache = make_source(*world, index, Reader::uring);
    std::vector<double> past;
    for (int round = 0; round < o.repeats; ++round) past.push_back(epoch_seconds(device, *past_cache, index, o, round));
    out.past_cache = median(past);
  }
  out.cached = median(cached);
  out.baseline = median(baseline);
  return out;
}

std::string EpochBench::str() const {
  const double samples = double(options.samples / options.batch * options.batch);
  const auto row = [&](const char* what, double seconds) {
    return fmt::format("  {:<66} {:7.2f} s {:9.0f} samples/s {:6.2f} GB/s\n", what, seconds, samples / seconds,
                       samples * double(options.sample_bytes) / seconds * 1e-9);
  };
  return fmt::format("an epoch of {} random samples of {} from one HDF5 file, batches of {}, {} loader threads\n  {}\n",
                     options.samples, format_bytes(std::uint64_t(options.sample_bytes)), options.batch, options.workers,
                     reader) +
         row("first epoch, from the disk", first) + row("later epochs, from the page cache; median", cached) +
         row("a bare pread loop from the page cache; median", baseline) +
         (past_cache > 0 ? row("each epoch by data.reader = uring, past the page cache; median", past_cache) : "");
}

}  // namespace millrace
