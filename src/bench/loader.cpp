#include "millrace/bench/loader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "bench/baseline_reads.hpp"
#include "bench/file.hpp"
#include "bench/loader_harness.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"

namespace millrace {
namespace {

struct Case {
  std::string name;
  bool baseline;
  std::function<double(std::uint64_t round)> seconds;
};

// Measures all cases in each round.
std::vector<LoaderBenchRow> measure_rounds(const std::vector<Case>& cases, int repeats, std::int64_t samples,
                                           std::int64_t sample_bytes) {
  std::vector<std::vector<double>> rates(cases.size());
  for (int round = -1; round < repeats; ++round)  // the first round only warms the caches
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const double rate = double(samples) / cases[c].seconds(std::uint64_t(round + 1));
      if (round >= 0) rates[c].push_back(rate);
    }
  std::size_t best = 0;
  for (std::size_t c = 0; c < cases.size(); ++c)
    if (cases[c].baseline && median(rates[c]) > median(rates[best])) best = c;
  std::vector<LoaderBenchRow> out;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    std::vector<double> ratios;
    for (std::size_t t = 0; t < rates[c].size(); ++t)
      ratios.push_back(cases[c].baseline ? 0 : rates[c][t] / rates[best][t]);
    const double rate = median(rates[c]);
    out.push_back({cases[c].name, rate, rate * double(sample_bytes) / 1e9, median(ratios)});
  }
  return out;
}

}  // namespace

LoaderBenchOptions LoaderBenchOptions::bounded() const {
  LoaderBenchOptions o = *this;
  const auto within = [&](std::int64_t count, std::int64_t bytes) {
    return std::max(o.micro_batch, std::min(count, bytes / std::max<std::int64_t>(1, o.sample_bytes)));
  };
  constexpr std::int64_t gib = std::int64_t(1) << 30;
  o.rows = within(rows, 2 * gib);
  o.samples = within(samples, 8 * gib);
  o.cold_samples = within(cold_samples, gib);
  return o;
}

LoaderBench bench_loader(Device& device, const LoaderBenchOptions& o) {
  if (o.workers < 1 || o.repeats < 1 || o.rows < o.micro_batch || o.micro_batch < 1 || o.samples < o.micro_batch ||
      o.cold_samples < o.micro_batch)
    fail(Exit::config, "bench loader: workers and repeats must be at least 1, rows and samples at least a micro-batch");
  const BenchFile file(o);
  const std::string path = file.path();
  const ShardIndex index = file.index();

  LoaderBench out;
  std::vector<std::unique_ptr<EngineUnderTest>> engines;
  const auto add = [&](std::vector<Case>& cases, Reader reader, std::int64_t samples, bool drop) {
    EngineUnderTest* engine = engines
                                  .emplace_back(std::make_unique<EngineUnderTest>(device, index, o.rows, o.micro_batch,
                                                                                  o.workers, o.prefetch, reader))
                                  .get();
    cases.push_back({"loader, " + engine->name(), false, [=, &file](std::uint64_t) {
                       if (drop) file.drop();
                       return engine->seconds(samples);
                     }});
  };
  std::vector<Case> cached;
  cached.push_back({fmt::format("baseline pread, {} threads", o.workers), true, [&](std::uint64_t round) {
                      return baseline_pread_seconds(device, path, o, round, o.samples, o.workers, false);
                    }});
  add(cached, Reader::direct, o.samples, false);
  add(cached, Reader::mmap, o.samples, false);
  out.cached = measure_rounds(cached, o.repeats, o.samples, o.sample_bytes);
  engines.clear();

  out.cold_skipped_reason = reader_facts(index).no_direct_io;
  if (!out.cold_skipped_reason.empty()) return out;
  file.drop();
  std::vector<Case> cold;
  for (const int threads : {o.workers, 8, 32})
    cold.push_back(
        {fmt::format("baseline O_DIRECT pread, {} threads", threads), true, [&, threads](std::uint64_t round) {
           return baseline_pread_seconds(device, path, o, round, o.cold_samples, threads, true);
         }});
  for (const int depth : {8, 32})
    cold.push_back({fmt::format("baseline io_uring, {} threads with {} reads in flight", o.workers, depth), true,
                    [&, depth](std::uint64_t round) {
                      return baseline_async_seconds(device, path, o, round, o.cold_samples, depth);
                    }});
  add(cold, Reader::uring, o.cold_samples, false);
  add(cold, Reader::direct, o.cold_samples, true);
  out.cold = measure_rounds(cold, o.repeats, o.cold_samples, o.sample_bytes);
  return out;
}

std::string LoaderBench::str() const {
  std::string out;
  const auto table = [&](const std::vector<LoaderBenchRow>& rows) {
    for (const LoaderBenchRow& row : rows) {
      out +=
          fmt::format("  {:<50} {:9.0f} samples/s {:6.2f} GB/s", row.name, row.samples_per_second, row.gb_per_second);
      if (row.ratio > 0) {
        out += fmt::format("  {:3.0f} % of the fastest baseline", 100 * row.ratio);
      }
      out += "\n";
    }
  };
  out += "random samples from the page cache\n";
  table(cached);
  out += cold_skipped_reason.empty() ? "from the disk\n" : "from the disk: no O_DIRECT (" + cold_skipped_reason + ")\n";
  table(cold);
  return out;
}

}  // namespace millrace
