#include "millrace/bench/storage.hpp"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <exception>
#include <thread>

#include "bench/baseline_reads.hpp"
#include "bench/loader_harness.hpp"
#include "bench/shards.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/load/slot_layout.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace {

// A scope in which the calling thread gets a CPU as soon as it wakes up, where the system allows that (CAP_SYS_NICE,
// ulimit -r). An emulated accelerator needs almost no CPU time, and should not wait for it.
class RealtimeScheduling {
 public:
  RealtimeScheduling() {
    const sched_param min_priority{1};
    had_ = ::pthread_getschedparam(::pthread_self(), &policy_, &param_) == 0 &&
           ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &min_priority) == 0;
  }
  ~RealtimeScheduling() {
    if (had_) ::pthread_setschedparam(::pthread_self(), policy_, &param_);
  }
  bool allowed() const { return had_; }

 private:
  int policy_ = 0;
  sched_param param_{};
  bool had_ = false;
};

// Runs the steps of this rank's emulated accelerators concurrently: one thread each, of which the first is the
// caller's.
class Accelerators {
 public:
  Accelerators(World& world, int mine, int all, const StorageWorkload& workload, int steps)
      : world_(world), mine_(mine), all_(all), workload_(workload), steps_(steps), barrier_(std::max(1, mine)) {}

  // loaders: one for each accelerator; empty: batches are ready at once. Collective.
  Utilization run(const std::vector<std::unique_ptr<Loader>>& loaders) {
    std::vector<Utilization> each(std::size_t(std::max(1, mine_)));
    failed_ = false;
    std::vector<std::thread> threads;
    for (int a = 1; a < mine_; ++a)
      threads.emplace_back([&, a] { steps(a, loaders.empty() ? nullptr : loaders[std::size_t(a)].get(), each); });
    steps(0, loaders.empty() ? nullptr : loaders[0].get(), each);
    for (auto& t : threads) t.join();
    world_.agree(Exit::data, failure_);
    double sums[4] = {};
    for (int a = 0; a < mine_; ++a) {
      const Utilization& u = each[std::size_t(a)];
      sums[0] += u.measured;
      sums[1] += u.nominal;
      sums[2] += u.data_wait;
      sums[3] += u.samples_per_second;
    }
    world_.all_reduce(std::span<double>(sums), World::Reduce::sum);
    return {sums[0] / all_, sums[1] / all_, sums[2] / all_, sums[3]};
  }

 private:
  // Waits for the accelerators of all ranks. Only the first thread may call MPI.
  void wait_for_all(int accelerator) {
    barrier_.arrive_and_wait();
    if (world_.size() == 1) return;
    if (accelerator == 0) world_.barrier();
    barrier_.arrive_and_wait();
  }

  void steps(int accelerator, Loader* loader, std::vector<Utilization>& out) {
    ::prctl(PR_SET_TIMERSLACK, 1000ul);  // timer slack of this thread, in nanoseconds
    const RealtimeScheduling realtime_scheduling;
    wait_for_all(accelerator);
    double first = 0, compute = 0, wait = 0;
    const double began = steady_seconds();
    for (int step = 0; step < steps_; ++step) {
      const double asked = steady_seconds();
      // After a failure this thread keeps calling wait_for_all(), so the others do not wait forever.
      if (loader && !failed_ && accelerator < mine_) try {
          if (!loader->next()) fail(Exit::internal, "bench storage: the loader ended early");
        } catch (const std::exception& e) {
          if (!failed_.exchange(true)) failure_ = e.what();
        }
      const double loaded = steady_seconds();
      if (!failed_ && accelerator < mine_) sleep_for(workload_.compute_seconds);
      const double computed = steady_seconds();
      if (step == 0) first = computed - asked;
      if (step > 0) {
        compute += computed - loaded;
        wait += loaded - asked;
      }
      wait_for_all(accelerator);
    }
    const double total = steady_seconds() - began - first, counted = steps_ - 1;
    out[std::size_t(accelerator)] = {compute / total, counted * workload_.compute_seconds / total, wait / total,
                                     counted * double(workload_.batch) / total};
  }

  World& world_;
  const int mine_, all_;
  const StorageWorkload& workload_;
  const int steps_;
  std::barrier<> barrier_;
  std::atomic<bool> failed_{false};
  std::string failure_;
};

// Calls make() at a lower priority, which the loader threads that it starts inherit. So they do not delay the
// accelerators even where RealtimeScheduling is not allowed.
template <class Make>
void make_at_low_priority(Make make) {
  std::exception_ptr failure;
  std::thread([&] {
    ::setpriority(PRIO_PROCESS, 0, 5);  // of this thread and of the threads that it starts
    try {
      make();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

double median_of(const std::vector<Utilization>& turns, double Utilization::*member) {
  std::vector<double> values;
  for (const Utilization& u : turns) values.push_back(u.*member);
  return median(values);
}

StorageBenchOptions resolved(const StorageBenchOptions& given) {
  StorageBenchOptions o = given;
  const StorageWorkload& w = o.workload;
  const std::int64_t step = w.batch * o.accelerators;
  if (o.samples == 0) o.samples = std::max(((std::int64_t(2) << 30) / w.sample_bytes / step + 1) * step, 4 * step);
  if (o.samples < step)
    fail(Exit::config,
         "bench storage: a step of {} accelerators needs {} samples, but the data set has {}. raise --samples",
         o.accelerators, step, o.samples);
  if (o.steps == 0) o.steps = int(std::clamp(std::ceil(10 / w.compute_seconds), 20.0, 2000.0));
  if (o.prefetch == 0) o.prefetch = int(std::clamp<std::int64_t>((128 << 20) / (w.batch * w.sample_bytes), 3, 32));
  return o;
}

// Bytes/s of the storage without a loader: random samples of the first shard, up to 1 GiB. Only this rank reads.
double baseline_rate(Device& device, const ShardIndex& index, Reader reader, std::uint64_t round) {
  const Shard& shard = index.shards.front();
  LoaderBenchOptions o;
  o.sample_bytes = index.sample.count();
  o.rows = shard.rows;
  o.micro_batch = 4;
  const std::int64_t samples = std::clamp<std::int64_t>((std::int64_t(1) << 30) / o.sample_bytes, 4, 4 * index.rows);
  std::vector<double> seconds;
  if (reader == Reader::uring)
    for (const int depth : {8, 32})
      seconds.push_back(baseline_async_seconds(device, shard.path, o, round, samples, depth));
  else
    seconds.push_back(baseline_pread_seconds(device, shard.path, o, round, samples, o.workers, false));
  return double(samples / o.workers * o.workers * o.sample_bytes) / *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace

StorageBench bench_storage(World& world, Device& device, const StorageBenchOptions& given) {
  StorageBench out;
  const StorageBenchOptions& o = out.options = resolved(given);
  const StorageWorkload& w = o.workload;
  const auto before = [&](int rank) { return int(std::int64_t(o.accelerators) * rank / world.size()); };
  const int first = before(world.rank()), mine = before(world.rank() + 1) - first;

  const BenchShards shards(world, o.folder, w.name, o.samples, w.sample_bytes, o.keep);
  DataOptions data;
  data.paths = {shards.glob()};
  const ShardIndex index = index_shards(world, data);
  if (index.rows != o.samples)
    fail(Exit::data, "bench storage: {} hold {} samples, not {} (was a run interrupted?). remove them", shards.glob(),
         index.rows, o.samples);
  const ReaderFacts facts = reader_facts(index);
  if (o.reader == Reader::uring && !facts.no_direct_io.empty())
    fail(Exit::config,
         "bench storage: the files cannot be read by O_DIRECT ({}). name another --dir, or read through the page "
         "cache: --reader direct",
         facts.no_direct_io);
  const std::uint64_t rings = std::uint64_t(o.accelerators / world.node_count() + 1) * std::uint64_t(o.prefetch) *
                              SlotLayout(index, w.batch).bytes;
  if (rings > facts.available)
    fail(Exit::config,
         "bench storage: reading ahead needs {}, but only {} of memory are free. lower --prefetch or --accelerators",
         format_bytes(rings), format_bytes(facts.available));
  out.cached = fmt::format("{}, {}", shards.made() ? "written by this run" : "already there",
                           o.reader == Reader::uring ? "read by O_DIRECT, without the page cache of this host"
                                                     : "read through the page cache");

  // Each round has epochs of its own. Each accelerator takes its part of every full step.
  const Sampler sampler(index.rows, w.batch * o.accelerators, w.batch, 1, true);
  const std::int64_t steps_per_epoch = index.rows / (w.batch * o.accelerators);
  Accelerators accelerators(world, mine, o.accelerators, w, o.steps);
  std::vector<double> baseline;
  for (int round = 0; round < o.turns; ++round) {
    if (world.rank() == 0) baseline.push_back(baseline_rate(device, index, o.reader, std::uint64_t(round)));
    out.ceiling.push_back(accelerators.run({}));
    std::vector<std::unique_ptr<Source>> sources;
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int a = 0; a < mine; ++a) {
      sources.push_back(make_source(world, index, o.reader));
      auto items = [&, round, accelerator = first + a, step = 0]() mutable -> std::optional<MicroBatch> {
        if (step == o.steps) return std::nullopt;
        const std::int64_t number = step++;
        return sampler.share(round * 1000 + number / steps_per_epoch, number % steps_per_epoch, accelerator,
                             o.accelerators)[0];
      };
      make_at_low_priority([&] {
        loaders.push_back(std::make_unique<Loader>(device, *sources.back(), index, sampler,
                                                   LoaderOptions{o.workers, o.prefetch, w.batch}, items));
      });
    }
    if (!sources.empty()) out.source = sources[0]->describe();
    out.replay.push_back(accelerators.run(loaders));
  }
  out.realtime_scheduling = RealtimeScheduling().allowed();
  out.baseline_bytes_per_second = baseline.empty() ? 0 : median(baseline);
  return out;
}

double StorageBench::relative(double Utilization::*member) const {
  std::vector<double> ratios;
  for (std::size_t t = 0; t < replay.size(); ++t) ratios.push_back(replay[t].*member / ceiling[t].*member);
  return median(ratios);
}

std::string StorageBench::str() const {
  const StorageWorkload& w = options.workload;
  const double rate = median_of(replay, &Utilization::samples_per_second);
  std::string out = fmt::format(
      "{} on {} x {}, emulated (unofficial: no MLPerf result). parameters: mlcommons/storage; metric: DLIO\n  {} "
      "samples per step and accelerator, {} each, compute {:g} ms; data set of {} samples, {}, {}\n  {}; workers {}, "
      "prefetch {} of each accelerator; {} rounds of {} steps; the first step of each does not count\n  {:<42} {:>9} "
      "{:>9} {:>10}\n  {:<42} {:7.2f} % {:7.2f} % {:8.2f} %\n  {:<42} {:7.2f} % {:7.2f} % {:8.2f} %\n  {:<42} {:7.2f} "
      "% {:7.2f} %\n  {:.0f} samples/s, {:.1f} MB/s; without waiting, the accelerators would take {:.1f} MB/s; "
      "baseline loops read {:.1f} MB/s of the same files\n[METRIC] Number of Simulated Accelerators: {}\n[METRIC] "
      "Training Accelerator Utilization [AU] (%): {:.4f}\n[METRIC] train_au_meet_expectation: {} ({:.0f} %)\n",
      w.name, options.accelerators, w.accelerator, w.batch, format_bytes(std::uint64_t(w.sample_bytes)),
      w.compute_seconds * 1e3, options.samples, format_bytes(std::uint64_t(options.samples * w.sample_bytes)), cached,
      source, options.workers, options.prefetch, options.turns, options.steps,
      "accelerator utilization, median of rounds", "measured", "nominal", "data wait",
      "ceiling: batches are ready at once", 100 * median_of(ceiling, &Utilization::measured),
      100 * median_of(ceiling, &Utilization::nominal), 100 * median_of(ceiling, &Utilization::data_wait),
      "replay: through the loader", 100 * median_of(replay, &Utilization::measured),
      100 * median_of(replay, &Utilization::nominal), 100 * median_of(replay, &Utilization::data_wait),
      "replay / ceiling, median of rounds", 100 * relative(&Utilization::measured),
      100 * relative(&Utilization::nominal), rate, rate * double(w.sample_bytes) / 1e6,
      options.accelerators * double(w.batch) / w.compute_seconds * double(w.sample_bytes) / 1e6,
      baseline_bytes_per_second / 1e6, options.accelerators, 100 * median_of(replay, &Utilization::measured),
      median_of(replay, &Utilization::measured) >= w.pass_utilization ? "success" : "fail", 100 * w.pass_utilization);
  if (!realtime_scheduling)
    out +=
        "the emulated accelerators compete with the loader's threads for the CPU, because real-time scheduling is not "
        "allowed (ulimit -r 1): with few cores this lowers the replay\n";
  if (median_of(ceiling, &Utilization::nominal) < 0.9)
    out += "the CPU is busy, so the accelerators slept far longer than intended: these results are too favourable\n";
  return out;
}

}  // namespace millrace
