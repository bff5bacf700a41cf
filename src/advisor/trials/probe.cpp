#include "millrace/advisor/trials/probe.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "millrace/bench/collective.hpp"
#include "millrace/system/process.hpp"
#include "millrace/system/signals.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/train/session/peaks.hpp"
#include "millrace/train/session/resolved_config.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Reads for the first time into each place, and never again.
class ResidentSource : public Source {
 public:
  explicit ResidentSource(std::unique_ptr<Source> source) : source_(std::move(source)) {}
  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    {
      const std::lock_guard lock(mutex_);
      if (!filled_.insert(x).second) return;
    }
    source_->read(ids, x, y);
  }
  std::string describe() const override { return "resident"; }
  int max_workers() const override { return source_->max_workers(); }

 private:
  std::unique_ptr<Source> source_;
  std::mutex mutex_;
  std::unordered_set<const void*> filled_;
};

// Large sums and gathers are not made; small ones are: by them ranks agree when to end.
class NoOpCollective : public Collective {
 public:
  explicit NoOpCollective(std::unique_ptr<Collective> inner) : inner_(std::move(inner)) {}
  std::string describe() const override { return inner_->describe(); }
  SharedRegion allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void all_reduce_async(const SharedRegion&, std::size_t, std::size_t, DType, int) override {}
  void reduce_scatter_async(const SharedRegion&, std::size_t, std::size_t, DType, int) override {}
  void all_gather_async(const SharedRegion&, std::size_t, std::size_t, DType, int) override {}
  void wait(int) override {}
  void finish() override {}
  void all_reduce_scalars(std::span<double> values) override { inner_->all_reduce_scalars(values); }
  void broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) override {
    inner_->broadcast(r, begin, bytes, root);
  }
  void take_spans(std::vector<CommSpan>& out) override { out.clear(); }

 private:
  std::unique_ptr<Collective> inner_;
};

// Of a step. Waits come in bursts, so it is a mean; where there are many steps, the median of the means of some parts
// of them: a moment in which the host took the cores away is in one part.
double typical_seconds(const std::vector<double>& steps) {
  constexpr std::size_t least = 16, most_parts = 9;  // steps of a part
  const std::size_t parts = std::clamp<std::size_t>(steps.size() / least, 1, most_parts);
  std::vector<double> means;
  for (std::size_t p = 0; p < parts; ++p) {
    const auto begin = steps.begin() + std::ptrdiff_t(p * steps.size() / parts),
               end = steps.begin() + std::ptrdiff_t((p + 1) * steps.size() / parts);
    means.push_back(std::accumulate(begin, end, 0.0) / double(end - begin));
  }
  return median(means);
}

constexpr std::int64_t endless = std::int64_t(1) << 40;

// What may fail on one rank alone, as an engine that a host does not have, fails on all: a trial goes on without it.
template <class Make>
auto made_on_all(World& world, Make make) {
  decltype(make()) made;
  std::string problem;
  try {
    made = make();
  } catch (const Error& error) {
    if (error.code() != Exit::config) throw;
    problem = error.what();
  }
  world.agree(Exit::config, problem);
  return made;
}

std::unique_ptr<Session> session(World& world, const RunConfig& config) {
  return made_on_all(world, [&] { return std::make_unique<Session>(world, config, Session::Use::train); });
}

}  // namespace

MemoryProbe probe_memory(World& world, const RunConfig& config) {
  const auto s = session(world, config);
  const std::int64_t share = (s->batching.global_batch + world.size() - 1) / world.size();
  MemoryProbe out{s->batching.micro_batch, 0, check_memory_fit(*s).problem};
  const bool all = out.problem.empty() && s->batching.micro_batch >= share;
  out.most =
      all ? share : max_micro_batch_that_fits(*s, out.problem.empty() ? share : std::min(share, s->batching.micro_batch - 1));
  return out;
}

StepProbe probe_steps(World& world, const RunConfig& config, Ablation ablation, std::int64_t first_step, double seconds,
                      double slowest) {
  const auto made = session(world, config);
  Session& s = *made;
  const std::string reader = s.data.train_source->describe();
  if (ablation != Ablation::nothing)
    s.data.train_source = std::make_unique<ResidentSource>(std::move(s.data.train_source));
  if (ablation >= Ablation::sums)
    s.compute.collective = std::make_unique<NoOpCollective>(std::move(s.compute.collective));
  StepProbe out;
  NetworkPlan plan = plan_within_memory(s);
  out.fusion = plan.train.front().fusion_level, out.most_fusion = s.compute.backend->max_fusion_level();
  out.gradient_bytes = std::uint64_t(plan.layout.count) * sizeof(float), out.batch_statistics = plan.layout.stats_count;
  Network network(s.compute, s.spec, std::move(plan));
  out.memory = double(network.needs().total()), out.memory_limit = double(s.memory_bytes());
  LoaderOptions options = s.step_loader_options();
  if (ablation != Ablation::nothing && options.prefetch == 0) options.prefetch = 4;  // new places would have to be read
  const auto loader = made_on_all(world, [&] {
    return std::make_unique<Loader>(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order,
                                    options, s.micro_batches(first_step, endless));
  });
  StepRunner runner(s, network, *loader);
  if (ablation == Ablation::optimizer) runner.disable_optimizer();
  const int lag = steps_in_flight(*s.compute.device);
  // The first ones fill the ring of batches, make what is made at first use, and are recorded.
  const std::int64_t warm_up = first_step + std::max(4 + lag, config.data.prefetch);
  const std::int64_t full = s.batching.train_order->rows_of_step(0);
  out.setting = resolved_config_of(s);
  out.setting.reader = reader.substr(0, reader.find_first_of(": "));  // not the resident one's
  out.flops = step_flops(s, network);
  out.rank.host = world.host(), out.rank.cores = s.placement.cores, out.rank.threads = s.placement.compute_threads;
  const ProcessStats before = process_stats();
  const double began = now();
  std::vector<double> steps;
  double all = 0;  // seconds of these
  bool stop = false;
  std::int64_t issued = first_step, collected = first_step;
  std::size_t division = 0;  // of steps among the ranks; what was measured before it changed counts for nothing
  while (!stop || collected < issued) {
    if (!stop) runner.enqueue(issued++, 0);
    if (!stop && issued - collected <= lag) continue;
    const bool hopeless = all > slowest * double(steps.size()) || stop_signal() != 0;
    const bool enough = (hopeless && steps.size() >= 2) || (now() - began > seconds && steps.size() >= 8) ||
                        (now() - began > 4 * seconds && (steps.size() >= 2 || collected - warm_up >= 8));
    const StepResult result = runner.collect(collected, enough, false);
    stop = stop || result.stop;
    s.batching.load_balancer->collected(result.metrics, runner.timer().timing());
    if (const std::size_t then = std::exchange(division, s.batching.load_balancer->changes(collected));
        then != division)
      steps.clear(), all = 0, out.rank.seconds = {};
    const std::int64_t in_epoch = s.batching.epochs.step_in_epoch(collected++);
    if (collected <= warm_up || s.batching.train_order->rows_of_step(in_epoch) != full) continue;
    steps.push_back(result.metrics.seconds), all += steps.back();
    for (std::size_t p = 0; p < out.rank.seconds.size(); ++p) out.rank.seconds[p] += result.metrics.phase_seconds[p];
  }
  out.batch = full, out.next_step = issued;
  out.steps = std::int64_t(steps.size());
  out.rank.steps = steps.size(), out.rank.wall_seconds = now() - began;
  out.rank.process = process_stats().since(before), out.rank.loader = loader->stats();
  if (DeviceHealth health; s.compute.device->read_health(health)) out.rank.health.add(health);
  out.seconds = steps.empty() ? 0 : typical_seconds(steps);
  return out;
}

PartsProbe probe_parts(World& world, const RunConfig& config, std::int64_t first_step, double seconds,
                       std::uint64_t gradient_bytes) {
  Session s(world, config, Session::Use::train);
  PartsProbe out;
  out.peak_flops = measure_peaks(s.compute, s.spec.compute).best_flops();
  const int sums = gradient_bytes < (16u << 20) ? 51 : 5;  // short ones are easily disturbed
  if (world.size() > 1) {
    Device& device = *s.compute.device;
    const AllReduceTiming one =
        bench_all_reduce(world, *s.compute.collective, {gradient_bytes}, sums, false, &device).front();
    out.sums.sums = {{.times = 1, .bytes = one.bytes, .busy = one.seconds}};
    out.sums.network_link = fastest_network_link();
    if (DeviceHealth health; device.read_health(health)) out.sums.health.add(health);
  }
  Loader loader(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order, s.loader_options(),
                s.micro_batches(first_step, endless));
  for (int i = 0; i < std::max(4, config.data.prefetch); ++i) loader.next();  // read ahead before
  world.barrier();
  const double began = now();
  double rows = 0;
  while (now() - began < seconds) {
    const Batch* batch = loader.next();
    if (!batch) break;
    rows += double(batch->item.rows);
    batch->begin_use(), batch->end_use();
  }
  double rate[] = {rows / (now() - began)};
  world.all_reduce(rate, World::Reduce::sum);
  out.loader_rate = rate[0], out.decoding = loader.stats().decoding();
  return out;
}

}  // namespace millrace
