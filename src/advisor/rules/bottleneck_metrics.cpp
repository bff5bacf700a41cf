// From an account to what the rules of the verdict go by.
#include <algorithm>
#include <set>

#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

int hosts_of(const std::vector<RankAccount>& ranks) {
  std::set<std::string> hosts;
  for (const RankAccount& r : ranks) hosts.insert(r.host);
  return int(hosts.size());
}

}  // namespace

void BottleneckMetrics::set_link(int hosts, const RankAccount& rank) {
  link = rank.network_link;
  double members = hosts;
  if (const DeviceHealthStats& h = rank.health; hosts == 1) {
    link = {}, members = ranks;
    if (h.nvlinks > 0 && h.nvlink_rate > 0)
      link = {cat(h.nvlinks, " NVLinks"), h.nvlink_rate, NetworkLink::Kind::nvlink};
  }
  const double long_sum = std::max(256.0 * 1024, link.rate * 50e-6);  // bytes; shorter ones are mostly latency
  double bytes = 0, busy = 0;
  for (const CollectiveOpStats& s : rank.sums)
    if (s.tag >= 0 && double(s.bytes) >= long_sum * double(s.times))
      bytes += bus_factor(s.op, members) * double(s.bytes), busy += s.busy;
  link_rate = busy > 0 ? bytes / busy : 0;  // as a ring of them has
}

void BottleneckMetrics::set_straggler(const std::vector<RankAccount>& all) {
  slow = straggler(all);
  if (slow.rank < 0) return;
  imbalance = slow.seconds - (probed ? slow.input_seconds : 0);
  double most = 0, speeds = 0;  // each rank at its own, all done at once
  for (const RankAccount& r : all) {
    const double computing =
        (r.seconds[std::size_t(Phase::forward)] + r.seconds[std::size_t(Phase::backward)]) / double(r.steps);
    most = std::max(most, computing), speeds += 1 / std::max(1e-9, computing);
  }
  uneven = most - double(all.size()) / speeds;
}

void BottleneckMetrics::set_machine(const std::vector<RankAccount>& all) {
  for (const RankAccount& r : all) {
    preempted = std::max(preempted, double(r.process.preempted) / std::max(1e-9, r.wall_seconds));
    const CoreContention of_rank = core_contention(all, int(&r - all.data()));
    if (of_rank.share() > taken.share()) taken = of_rank;
    if (const double rate = r.loader.copy_bytes_rate(); rate > 0 && (copy_rate == 0 || rate < copy_rate))
      copy_rate = rate;
    const DeviceHealthStats& h = r.health;
    const auto less = [](int is, int may) { return is >= 0 && is < may; };
    if (less(h.pcie_generation, h.top_pcie_generation) || less(h.pcie_lanes, h.top_pcie_lanes)) {
      const auto name = [](int generation, int lanes) { return cat("generation ", generation, " x", lanes); };
      pcie = name(h.pcie_generation, h.pcie_lanes), top_pcie = name(h.top_pcie_generation, h.top_pcie_lanes);
    }
    for (const auto& [reason, part] : h.slowed)
      if (part >= 0.1 && h.top_clock_mhz > 0 && h.clock_mhz / h.top_clock_mhz < clock)
        clock = h.clock_mhz / h.top_clock_mhz, slowed = reason;
  }
}

BottleneckMetrics bottleneck_metrics_of(const Account& account, const ResolvedConfig& setting) {
  BottleneckMetrics e;
  static_cast<ResolvedConfig&>(e) = setting;
  if (account.ranks.empty() || account.ranks[0].steps == 0) return e;
  const auto of = [](const RankAccount& r, Phase p) { return r.seconds[std::size_t(p)]; };
  const auto own = [&](const RankAccount& r) {
    double sum = -r.first_wait();
    for (const Phase p : {Phase::data_wait, Phase::copy, Phase::forward, Phase::backward, Phase::optimizer})
      sum += of(r, p);
    return sum;
  };
  const RankAccount& slow = *std::max_element(account.ranks.begin(), account.ranks.end(),
                                              [&](const auto& a, const auto& b) { return own(a) < own(b); });
  e.steps = double(slow.steps);
  e.step = account.ranks[0].step_times.mean;
  e.set_straggler(account.ranks);
  // Where the host itself takes the batch, what it did not wait for the loader then was taken by others from its core.
  const double at_batch = of(slow, Phase::data_wait) + (e.gpu ? 0 : of(slow, Phase::copy));
  double waited = e.gpu ? at_batch : std::min(at_batch, slow.loader.wait_seconds);
  const double first = std::min(waited, slow.first_wait());
  waited -= first, e.step -= first / e.steps;
  if (e.gpu) e.copy = of(slow, Phase::copy) / e.steps;
  e.without_input = e.step - waited / e.steps + e.slow.input_seconds;
  // What the ranks agree on after a step keeps the fast ones waiting, too.
  const double other = of(slow, Phase::other) / e.steps;
  // Known of full steps after the first ones: never more than all steps have left.
  const double left = std::max(0.0, e.without_input - of(slow, Phase::communication) / e.steps);
  const double meeting = !e.gpu && slow.pace.meets ? std::min({other, slow.pace.meeting, left}) : 0;
  e.without_sums = left - meeting;
  if (!e.gpu) {  // there a sum's own time begins with the first rank's kernel
    double exposed = 0, queued = 0;
    for (const CollectiveOpStats& s : slow.sums) exposed += s.exposed, queued += s.queued;
    e.late = std::clamp(of(slow, Phase::communication) - exposed, 0.0, queued) / e.steps + meeting;
    e.late = std::min(e.late, e.without_input - e.without_sums);
  }
  e.set_link(hosts_of(account.ranks), account.ranks[0]);
  e.checkpoint = of(slow, Phase::checkpoint) / e.steps, e.evaluation = of(slow, Phase::evaluation) / e.steps;
  e.host = other - meeting, e.optimizer = of(slow, Phase::optimizer) / e.steps;
  e.checkpoints = slow.checkpoints, e.needed_checkpoints = slow.needed_checkpoints;
  e.evaluations = slow.evaluations;
  e.flops = slow.flops;
  if (!slow.pace.ready.empty()) e.gradient_bytes = double(slow.pace.ready.back().bytes);
  e.memory = double(slow.memory_bytes), e.memory_limit = slow.memory_limit;
  e.decoding = slow.loader.decoding();
  e.wall = slow.wall_seconds, e.startup = of(slow, Phase::startup) + first;
  e.set_machine(account.ranks);
  for (const RankAccount& r : account.ranks) {
    e.loader_rate += r.loader.capacity();
    e.depth += r.loader.mean_depth() / double(account.ranks.size());
  }
  e.batch = double(slow.samples) / e.steps;
  if (slow.loader.samples > 0)
    e.decodes = double(slow.loader.decoded.chunks) * double(e.chunk_rows) / double(slow.loader.samples);
  return e;
}

}  // namespace millrace
