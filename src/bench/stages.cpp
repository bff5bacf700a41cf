#include <fmt/core.h>

#include <barrier>
#include <exception>
#include <mutex>
#include <thread>

#include "bench/loader_harness.hpp"
#include "bench/stored_samples.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/bench/loader.hpp"
#include "millrace/data/load/slot_layout.hpp"

namespace millrace {
namespace {

// Samples/s of `threads` threads, each of which repeats a StageWork for this many seconds.
double rate(int threads, double seconds, const std::function<StageWork()>& make) {
  std::vector<StageWork> pieces;
  for (int t = 0; t < threads; ++t) pieces.push_back(make());
  std::vector<double> done(pieces.size(), 0);
  std::mutex mutex;
  std::exception_ptr failure;
  std::barrier<> start(threads + 1);
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < pieces.size(); ++t)
    all.emplace_back([&, t] {
      start.arrive_and_wait();
      const double end = steady_seconds() + seconds;
      try {
        while (steady_seconds() < end) done[t] += pieces[t]();
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
  start.arrive_and_wait();
  const double began = steady_seconds();
  for (auto& t : all) t.join();
  const double took = steady_seconds() - began;
  if (failure) std::rethrow_exception(failure);
  double samples = 0;
  for (const double d : done) samples += d;
  return samples / took;
}

// One worker of the engine, with as many reads in flight as in the loader.
StageWork engine_piece(Device& device, Source& source, const ShardIndex& index, SampleOrder& order) {
  struct Unit {
    std::vector<std::int64_t> ids;
  };
  constexpr std::size_t max_units = 64;
  const SlotLayout layout(index, order.unit());
  auto space = memory(device, layout.bytes * max_units);
  auto reads = std::shared_ptr<ReadQueue>(source.make_read_queue({space->as<char>(), space->bytes()}));
  auto units = std::make_shared<std::vector<Unit>>(max_units);
  return [&order, layout, space, reads, units, begun = std::size_t(0), ended = std::size_t(0)]() mutable {
    Unit& unit = (*units)[begun % max_units];
    reads->epoch(order.next(unit.ids));
    char* at = space->as<char>() + begun++ % max_units * layout.bytes;
    reads->begin(unit.ids, at, at + layout.y_offset);
    if (begun - ended < max_units && reads->can_submit()) return 0.0;
    reads->finish();
    return double((*units)[ended++ % max_units].ids.size());
  };
}

}  // namespace

StageRates bench_stages(Device& device, Source& source, const ShardIndex& index, const Sampler& sampler,
                        const LoaderOptions& options, int repeats, double seconds) {
  if (index.synthetic()) fail(Exit::config, "bench loader: data.train is synthetic, so nothing is read. name files");
  const int workers = std::max(1, std::min(options.workers, source.max_workers()));
  const bool direct_io = source.describe().starts_with("uring");
  StoredSamples stored(device, index, direct_io);
  const auto unit = std::clamp<std::int64_t>((256 << 10) / std::int64_t(index.sample_bytes()), 1, options.max_rows);
  std::vector<double> baseline_read, baseline_decode, engine, loader, chunks;
  LoaderUnderTest loader_under_test(device, source, index, sampler, options);
  for (int round = -1; round < repeats; ++round) {  // the first round only warms the caches
    const LoaderUnderTest::Measurement l = loader_under_test.measure(seconds, 0);
    loader_under_test.wait_until_idle();
    const double share = stored.chunks() > 0 ? l.chunks / stored.chunks() : 1;
    const bool baseline = stored.known() && share > 0;  // 0: all decoded chunks are in the cache
    SampleOrder order(sampler, index.rows, unit), baseline_order(sampler, index.rows, unit);
    const double e = rate(workers, seconds, [&] { return engine_piece(device, source, index, order); });
    const double r =
        baseline ? rate(direct_io ? 32 : workers, seconds, [&] { return stored.reader(baseline_order, share); }) : 0;
    const double d = baseline && stored.decodes() ? rate(workers, seconds, [&] { return stored.decoder(share); }) : 0;
    if (round < 0) continue;
    loader.push_back(l.rate);
    chunks.push_back(share);
    engine.push_back(e);
    baseline_read.push_back(r);
    baseline_decode.push_back(d);
  }
  StageRates out{median(baseline_read), median(baseline_decode), median(engine), median(loader), 0, {}, 0, false};
  out.fully_cached = stored.chunks() > 0 && median(chunks) == 0;
  out.stored_bytes = stored.bytes() * median(chunks);
  out.baseline_method = direct_io ? "pread by O_DIRECT, 32 threads"
                                  : fmt::format("pread, {}{}", workers, workers == 1 ? " thread" : " threads");
  const double step = 1.2 * double(options.max_rows) / out.loader;
  std::vector<double> waits;
  for (int round = 0; round < std::min(3, repeats); ++round)
    waits.push_back(loader_under_test.measure(std::max(4 * seconds, 20 * step), step).wait_share);
  out.wait_share = median(waits);
  return out;
}

}  // namespace millrace
