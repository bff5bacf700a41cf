// Measures how long short steps wait for data although the loader is fast enough on average. The workers read from the
// page cache and then use CPU time for each micro-batch, as decoding does, so they are busy for 1 / 1.2 of a step.
#include <fmt/core.h>

#include <atomic>

#include "bench/file.hpp"
#include "bench/loader_harness.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/bench/loader.hpp"
#include "millrace/data/open/open_source.hpp"

namespace millrace {
namespace {

// Adds CPU time of the reading thread to each sample.
class SlowSource : public Source {
 public:
  SlowSource(std::unique_ptr<Source> inner, double seconds) : inner_(std::move(inner)), seconds_(seconds) {}
  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const double until = thread_cpu_seconds() + seconds_ * double(ids.size());
    inner_->read(ids, x, y);
    while (thread_cpu_seconds() < until) continue;
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<Source> inner_;
  const double seconds_;
};

// Minimum of Measurement::offered in a round that counts: on a shared machine the workers may suddenly be too slow.
constexpr double min_offered = 1.15;

}  // namespace

WaitBench bench_waits(Device& device, const LoaderBenchOptions& o, const std::vector<double>& steps, double seconds) {
  const BenchFile file(o);
  const ShardIndex index = file.index();
  const Sampler sampler(o.rows, o.micro_batch, o.micro_batch, 1, true);
  WaitBench out;
  for (const double step : steps) {
    SlowSource source(make_source(*solo_world(), index, Reader::direct),
                      step / 1.2 * double(o.workers) / double(o.micro_batch));
    const std::vector<int> rings = {o.prefetch, 0};
    std::vector<std::unique_ptr<LoaderUnderTest>> loaders;
    std::vector<std::vector<double>> waits(rings.size()), all(rings.size());
    std::vector<double> rates, step_seconds;
    for (const int prefetch : rings)
      loaders.push_back(std::make_unique<LoaderUnderTest>(device, source, index, sampler,
                                                          LoaderOptions{o.workers, prefetch, o.micro_batch}));
    for (int round = 0; round < o.repeats; ++round) {
      const double rate = loaders[0]->measure(std::max(seconds / 2, 10 * step), 0).rate;
      step_seconds.push_back(1.2 * double(o.micro_batch) / rate);
      rates.push_back(rate);
      for (std::size_t k = 0; k < rings.size(); ++k) {
        const LoaderUnderTest::Measurement t = loaders[k]->measure(std::max(seconds, 20 * step), step_seconds.back());
        all[k].push_back(t.wait_share);
        if (t.offered >= min_offered) waits[k].push_back(t.wait_share);
      }
    }
    const auto share = [&](std::size_t k) { return median(waits[k].empty() ? all[k] : waits[k]); };
    out.rows.push_back(
        {step, median(step_seconds), median(rates), share(0), share(1), int(waits[0].size()), int(waits[1].size())});
  }
  out.turns = o.repeats;
  out.prefetch = o.prefetch;
  out.workers = o.workers;
  out.bytes = o.micro_batch * o.sample_bytes;
  return out;
}

std::string WaitBench::str() const {
  std::string out = "steps that sleep 1.2 times as long as the loader needs for a micro-batch";
  out += fmt::format(
      " ({} bytes, {} workers); medians over those of {} rounds in\nwhich the workers could deliver {:.2f} times what "
      "the steps took, or over all rounds if there are none\n  {:>12} {:>14} {:>25} {:>21}\n",
      bytes, workers, turns, min_offered, "intended", "step", "waits, prefetch", "auto");
  for (const WaitRow& r : rows) {
    out += fmt::format("  {:9.1f} ms {:11.2f} ms {:10}: {:6.2f} % ({:2}) {:14.2f} % ({:2})\n", r.target_step * 1e3,
                       r.step * 1e3, prefetch, 100 * r.wait_fixed, r.turns_fixed, 100 * r.wait_auto, r.turns_auto);
  }
  return out;
}

}  // namespace millrace
