#include "millrace/advisor/trials/probe.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/base/clock.hpp"
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

// Reads each slot of the loader once; afterwards its samples stay.
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

// Skips the collectives of gradients, weights and statistics. Scalar all-reduces still run: the ranks agree by them
// when to end.
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

// Seconds per step. Waits come in bursts, so it is a mean. Many steps are divided into parts, and the median of the
// parts' means is taken: a moment in which the cores were taken away affects one part only.
double typical_seconds(const std::vector<double>& steps) {
  constexpr std::size_t min_part_steps = 16, max_parts = 9;
  const std::size_t parts = std::clamp<std::size_t>(steps.size() / min_part_steps, 1, max_parts);
  std::vector<double> means;
  for (std::size_t p = 0; p < parts; ++p) {
    const auto begin = steps.begin() + std::ptrdiff_t(p * steps.size() / parts),
               end = steps.begin() + std::ptrdiff_t((p + 1) * steps.size() / parts);
    means.push_back(std::accumulate(begin, end, 0.0) / double(end - begin));
  }
  return median(means);
}

constexpr std::int64_t endless = std::int64_t(1) << 40;

// Makes something that may fail on one rank alone, like a reader engine that its host lacks. Error(config) on all ranks
// if it fails on any, so that a trial fails as a whole.
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

// Disables what the ablation leaves out.
void disable_parts(Session& s, Ablation ablation) {
  if (ablation >= Ablation::no_input)
    s.data.train_source = std::make_unique<ResidentSource>(std::move(s.data.train_source));
  if (ablation < Ablation::no_communication) return;
  for (auto* collective : {&s.compute.collective, &s.compute.exchange})
    if (*collective) *collective = std::make_unique<NoOpCollective>(std::move(*collective));
}

// When a probe ends, and what counts.
struct StepBudget {
  std::int64_t warm_up = 0;  // steps before this one do not count
  std::int64_t full = 0;     // samples of a full step; shorter ones do not count
  double seconds = 0, slowest = 0;
};

struct TimedSteps {
  std::vector<double> seconds;  // of each step that counts
  std::array<double, phase_count> phase_seconds{};
  std::int64_t issued = 0;  // the first step that was not run
};

// Runs and times steps until the budget is used.
class StepLoop {
 public:
  StepLoop(Session& s, StepRunner& runner, const StepBudget& budget) : s_(s), runner_(runner), budget_(budget) {}

  TimedSteps run(std::int64_t first_step) {
    const int lag = steps_in_flight(*s_.compute.device);
    bool stop = false;
    std::int64_t collected = first_step;
    out_.issued = first_step;
    while (!stop || collected < out_.issued) {
      if (!stop) runner_.enqueue(out_.issued++, 0);
      if (!stop && out_.issued - collected <= lag) continue;
      const StepResult result = runner_.collect(collected, {.stop = is_enough(collected)});
      stop = stop || result.stop;
      count(result, collected++);
    }
    return std::move(out_);
  }

 private:
  bool is_enough(std::int64_t collected) const {
    const std::size_t steps = out_.seconds.size();
    const double elapsed = steady_seconds() - began_;
    const bool hopeless = total_ > budget_.slowest * double(steps) || stop_signal() != 0;
    return (hopeless && steps >= 2) || (elapsed > budget_.seconds && steps >= 8) ||
           (elapsed > 4 * budget_.seconds && (steps >= 2 || collected - budget_.warm_up >= 8));
  }

  void count(const StepResult& result, std::int64_t step) {
    s_.batching.load_balancer->after_step(result.metrics, runner_.timer().timing());
    // A new micro-batch split makes all times before it worthless.
    if (const std::size_t split = s_.batching.load_balancer->split_number(step); split != split_) {
      split_ = split;
      out_.seconds.clear();
      out_.phase_seconds = {};
      total_ = 0;
    }
    const bool warm = step + 1 > budget_.warm_up;
    if (!warm || s_.batching.train_order->rows_of_step(s_.batching.epochs.step_in_epoch(step)) != budget_.full) return;
    out_.seconds.push_back(result.metrics.seconds);
    total_ += result.metrics.seconds;
    for (std::size_t p = 0; p < out_.phase_seconds.size(); ++p)
      out_.phase_seconds[p] += result.metrics.phase_seconds[p];
  }

  Session& s_;
  StepRunner& runner_;
  const StepBudget budget_;
  const double began_ = steady_seconds();
  TimedSteps out_;
  double total_ = 0;  // seconds of the counted steps
  std::size_t split_ = 0;
};

}  // namespace

MemoryProbe probe_memory(World& world, const RunConfig& config) {
  const auto s = session(world, config);
  const std::int64_t share = (s->batching.global_batch + world.size() - 1) / world.size();
  MemoryProbe out{s->batching.micro_batch, 0, check_memory_fit(*s).problem};
  const bool fits = out.problem.empty();
  if (fits && s->batching.micro_batch >= share)
    out.max_micro_batch = share;
  else
    out.max_micro_batch = max_micro_batch_that_fits(*s, fits ? share : std::min(share, s->batching.micro_batch - 1));
  return out;
}

StepProbe probe_steps(World& world, const RunConfig& config, Ablation ablation, std::int64_t first_step, double seconds,
                      double slowest) {
  const auto made = session(world, config);
  Session& s = *made;
  const std::string reader = s.data.train_source->describe();  // before the resident source replaces it
  disable_parts(s, ablation);
  StepProbe out;
  NetworkPlan plan = plan_within_memory(s);
  out.max_fusion = s.compute.backend->max_fusion_level();
  // On GPUs, auto is a level.
  out.fusion = s.spec.fusion < 0 && s.compute.device->shares_host_memory() ? -1 : plan.train.front().fusion_level;
  out.gradient_bytes = std::uint64_t(plan.layout.count) * sizeof(float);
  out.batch_statistics = plan.layout.stats_count;
  Network network(s.compute, s.spec, std::move(plan));
  out.memory = double(network.needs().total());
  out.memory_limit = double(s.memory_bytes());
  LoaderOptions options = s.step_loader_options();
  // A queue that adapts its depth would read into new slots.
  if (ablation != Ablation::none && options.prefetch == 0) options.prefetch = 4;
  const auto loader = made_on_all(world, [&] {
    return std::make_unique<Loader>(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order,
                                    options, s.micro_batches(first_step, endless));
  });
  StepRunner runner(s, network, *loader);
  if (ablation == Ablation::no_optimizer) runner.disable_optimizer();
  out.config = resolved_config_of(s);
  out.config.input.reader = reader.substr(0, reader.find_first_of(": "));
  out.flops = step_flops(s, network);
  out.rank.host = world.host();
  out.rank.cores = s.placement.cores;
  out.rank.threads = s.placement.compute_threads;

  // The first steps fill the queue of batches, allocate on first use and are captured.
  const std::int64_t warm_up = first_step + std::max(4 + steps_in_flight(*s.compute.device), config.data.prefetch);
  const std::int64_t full = s.batching.train_order->rows_of_step(0);
  const ProcessStats before = process_stats();
  const double began = steady_seconds();
  const TimedSteps timed = StepLoop(s, runner, {warm_up, full, seconds, slowest}).run(first_step);
  out.batch = full;
  out.next_step = timed.issued;
  out.steps = std::int64_t(timed.seconds.size());
  out.seconds = timed.seconds.empty() ? 0 : typical_seconds(timed.seconds);
  out.rank.steps = timed.seconds.size();
  out.rank.seconds = timed.phase_seconds;
  out.rank.wall_seconds = steady_seconds() - began;
  out.rank.process = process_stats().since(before);
  out.rank.loader = loader->stats();
  if (DeviceHealth health; s.compute.device->read_health(health)) out.rank.health.add(health);
  return out;
}

PartsProbe probe_parts(World& world, const RunConfig& config, std::int64_t first_step, double seconds,
                       std::uint64_t gradient_bytes) {
  Session s(world, config, Session::Use::train);
  PartsProbe out;
  out.peak_flops = measure_peaks(s.compute, s.spec.compute).best_flops();
  const int repeats = gradient_bytes < (16u << 20) ? 51 : 5;  // short all-reduces are easily disturbed
  if (world.size() > 1) {
    Device& device = *s.compute.device;
    const AllReduceTiming one =
        bench_all_reduce(world, *s.compute.collective, {gradient_bytes}, repeats, false, &device).front();
    out.communication.sums = {{.times = 1, .bytes = one.bytes, .busy = one.seconds}};
    out.communication.network_link = fastest_network_link();
    if (DeviceHealth health; device.read_health(health)) out.communication.health.add(health);
  }
  Loader loader(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order, s.loader_options(),
                s.micro_batches(first_step, endless));
  for (int i = 0; i < std::max(4, config.data.prefetch); ++i) loader.next();  // uses up what was read ahead
  world.barrier();
  const double began = steady_seconds();
  double rows = 0;
  while (steady_seconds() - began < seconds) {
    const Batch* batch = loader.next();
    if (!batch) break;
    rows += double(batch->item.rows);
  }
  double rate[] = {rows / (steady_seconds() - began)};
  world.all_reduce(rate, World::Reduce::sum);
  out.loader_rate = rate[0];
  out.decoding_share = loader.stats().decoding();
  return out;
}

}  // namespace millrace
