// From the account of a run to the metrics that the rules of the verdict read.
#include "millrace/advisor/rules/bottleneck_metrics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

int hosts_of(const std::vector<RankAccount>& ranks) {
  std::set<std::string> hosts;
  for (const RankAccount& r : ranks) hosts.insert(r.host);
  return int(hosts.size());
}

// The time that a rank spends on its own work, without waits for other ranks and for the first batch.
double own_seconds(const RankAccount& r) {
  double sum = -r.first_wait();
  for (const Phase p : {Phase::data_wait, Phase::copy, Phase::forward, Phase::backward, Phase::optimizer})
    sum += r.seconds_in(p);
  return sum;
}

const RankAccount& slowest_rank(const std::vector<RankAccount>& ranks) {
  return *std::max_element(ranks.begin(), ranks.end(),
                           [](const auto& a, const auto& b) { return own_seconds(a) < own_seconds(b); });
}

// Waits for the loader, split into the wait for the first batch, which belongs to start-up, and all others.
struct InputWait {
  double first = 0, later = 0;  // seconds of the whole run
};
// On a CPU the step takes the batch on its own core. Time at the batch that was no wait for the loader then went to
// other work on that core.
InputWait input_wait(const RankAccount& slow, bool gpu) {
  const double at_batch = slow.seconds_in(Phase::data_wait) + (gpu ? 0 : slow.seconds_in(Phase::copy));
  const double waited = gpu ? at_batch : std::min(at_batch, slow.loader.wait_seconds);
  const double first = std::min(waited, slow.first_wait());
  return {first, waited - first};
}

// Seconds per step that the all-reduces of a CPU run waited for the last rank. On a GPU an all-reduce starts with the
// first rank's kernel, so its wait cannot be told apart.
double late_rank_wait(const BottleneckMetrics& e, const RankAccount& slow, double sync_wait) {
  double exposed = 0, queued = 0;
  for (const CollectiveOpStats& s : slow.sums) {
    exposed += s.exposed;
    queued += s.queued;
  }
  const double waited = std::clamp(slow.seconds_in(Phase::communication) - exposed, 0.0, queued);
  return std::min(waited / e.run.steps + sync_wait, e.without.input - e.without.communication);
}

void set_times(BottleneckMetrics& e, const RankAccount& slow, const InputWait& wait) {
  const bool gpu = e.config.machine.gpu;
  const double steps = e.run.steps;
  e.times.step -= wait.first / steps;
  if (gpu) e.times.copy = slow.seconds_in(Phase::copy) / steps;
  e.without.input = e.times.step - wait.later / steps + e.straggler.input_seconds;
  // The fast ranks also wait in the synchronisation after a step. Its time is known from full steps after the first
  // ones; it can never exceed what all steps have left.
  const double other = slow.seconds_in(Phase::other) / steps;
  const double left = std::max(0.0, e.without.input - slow.seconds_in(Phase::communication) / steps);
  const double sync_wait = !gpu && slow.pace.meets ? std::min({other, slow.pace.meeting, left}) : 0;
  e.without.communication = left - sync_wait;
  if (!gpu) e.times.late_rank_wait = late_rank_wait(e, slow, sync_wait);
  e.times.checkpoint = slow.seconds_in(Phase::checkpoint) / steps;
  e.times.evaluation = slow.seconds_in(Phase::evaluation) / steps;
  e.times.host = other - sync_wait;
  e.times.optimizer = slow.seconds_in(Phase::optimizer) / steps;
}

void set_input(BottleneckMetrics& e, const RankAccount& slow, const std::vector<RankAccount>& ranks) {
  e.input.decoding_share = slow.loader.decoding();
  for (const RankAccount& r : ranks) {
    e.input.loader_rate += r.loader.capacity();
    e.input.mean_queue_depth += r.loader.mean_depth() / double(ranks.size());
  }
  if (slow.loader.samples > 0)
    e.input.decodes_per_chunk =
        double(slow.loader.decoded.chunks) * double(e.config.input.chunk_rows) / double(slow.loader.samples);
}

}  // namespace

void BottleneckMetrics::set_link(int hosts, const RankAccount& rank) {
  NetworkLink& link = communication.link;
  link = rank.network_link;
  double members = hosts;
  if (hosts == 1) {
    const DeviceHealthStats& h = rank.health;
    members = config.machine.ranks;
    link = {};
    if (h.nvlinks > 0 && h.nvlink_rate > 0)
      link = {fmt::format("{} NVLinks", h.nvlinks), h.nvlink_rate, NetworkLink::Kind::nvlink};
  }
  const double long_bytes = std::max(256.0 * 1024, link.rate * 50e-6);  // shorter ones are mostly latency
  double bytes = 0, busy = 0;
  for (const CollectiveOpStats& s : rank.sums)
    if (s.tag >= 0 && double(s.bytes) >= long_bytes * double(s.times)) {
      bytes += bus_factor(s.op, members) * double(s.bytes);
      busy += s.busy;
    }
  communication.link_rate = busy > 0 ? bytes / busy : 0;  // of a ring
}

void BottleneckMetrics::set_straggler(const std::vector<RankAccount>& all) {
  straggler = find_straggler(all);
  if (straggler.rank < 0) return;
  times.imbalance = straggler.seconds - (probed ? straggler.input_seconds : 0);
  // If each rank got micro-batches in proportion to its speed, all would end at the same time.
  double slowest = 0, speeds = 0;
  for (const RankAccount& r : all) {
    const double computing = (r.seconds_in(Phase::forward) + r.seconds_in(Phase::backward)) / double(r.steps);
    slowest = std::max(slowest, computing);
    speeds += 1 / std::max(1e-9, computing);
  }
  times.balance_gain_seconds = slowest - double(all.size()) / speeds;
}

void BottleneckMetrics::set_machine(const std::vector<RankAccount>& all) {
  const auto below = [](int value, int possible) { return value >= 0 && value < possible; };
  const auto pcie_name = [](int generation, int lanes) { return fmt::format("generation {} x{}", generation, lanes); };
  for (int rank = 0; rank < int(all.size()); ++rank) {
    const RankAccount& r = all[std::size_t(rank)];
    const double preempted = double(r.process.preempted) / std::max(1e-9, r.wall_seconds);
    machine.preempted_per_second = std::max(machine.preempted_per_second, preempted);
    const CoreContention contention = core_contention(all, rank);
    if (contention.share() > machine.contention.share()) machine.contention = contention;
    if (const double rate = r.loader.copy_bytes_rate(); rate > 0 && (input.copy_rate == 0 || rate < input.copy_rate))
      input.copy_rate = rate;
    const DeviceHealthStats& h = r.health;
    if (below(h.pcie_generation, h.top_pcie_generation) || below(h.pcie_lanes, h.top_pcie_lanes)) {
      machine.pcie = pcie_name(h.pcie_generation, h.pcie_lanes);
      machine.max_pcie = pcie_name(h.top_pcie_generation, h.top_pcie_lanes);
    }
    for (const auto& [reason, share] : h.throttle_reasons)
      if (share >= 0.1 && h.top_clock_mhz > 0 && h.clock_mhz / h.top_clock_mhz < machine.clock_share) {
        machine.clock_share = h.clock_mhz / h.top_clock_mhz;
        machine.throttle_reason = reason;
      }
  }
}

BottleneckMetrics bottleneck_metrics_of(const Account& account, const ResolvedConfig& config) {
  BottleneckMetrics e;
  e.config = config;
  const auto& ranks = account.ranks;
  if (ranks.empty() || ranks[0].steps == 0) return e;
  const RankAccount& slow = slowest_rank(ranks);
  e.run.steps = double(slow.steps);
  e.run.batch = double(slow.samples) / e.run.steps;
  e.run.checkpoints = slow.checkpoints;
  e.run.needed_checkpoints = slow.needed_checkpoints;
  e.run.evaluations = slow.evaluations;
  const InputWait wait = input_wait(slow, config.machine.gpu);
  e.run.wall_seconds = slow.wall_seconds;
  e.run.startup_seconds = slow.seconds_in(Phase::startup) + wait.first;
  e.times.step = ranks[0].step_times.mean;
  e.set_straggler(ranks);
  set_times(e, slow, wait);
  set_input(e, slow, ranks);
  e.set_link(hosts_of(ranks), ranks[0]);
  e.set_machine(ranks);
  e.computing.flops_per_step = slow.flops;
  if (!slow.pace.ready.empty()) e.communication.gradient_bytes = double(slow.pace.ready.back().bytes);
  e.memory.planned = double(slow.memory_bytes);
  e.memory.limit = slow.memory_limit;
  return e;
}

}  // namespace millrace
