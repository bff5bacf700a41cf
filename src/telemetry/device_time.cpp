#include "millrace/telemetry/device_time.hpp"

#include <algorithm>

namespace millrace {

std::vector<Interval> merge_intervals(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> out;
  for (const auto& [begin, end] : intervals) {
    if (begin >= end) continue;
    if (!out.empty() && begin <= out.back().second)
      out.back().second = std::max(out.back().second, end);
    else
      out.emplace_back(begin, end);
  }
  return out;
}

std::int64_t length(const std::vector<Interval>& disjoint) {
  std::int64_t sum = 0;
  for (const auto& [begin, end] : disjoint) sum += end - begin;
  return sum;
}

std::int64_t length_outside(const std::vector<Interval>& disjoint, const std::vector<Interval>& of_disjoint) {
  std::int64_t outside = length(disjoint);
  std::size_t first = 0;
  for (const auto& [begin, end] : disjoint) {
    while (first < of_disjoint.size() && of_disjoint[first].second <= begin) ++first;
    for (std::size_t i = first; i < of_disjoint.size() && of_disjoint[i].first < end; ++i)
      outside -= std::min(end, of_disjoint[i].second) - std::max(begin, of_disjoint[i].first);
  }
  return outside;
}

void DeviceTimeCollector::learn(const std::vector<Activity>& activities) {
  std::map<std::uint64_t, double> seconds_of_call;
  const auto known = [&](const Activity& a) {
    return a.kind == Activity::Kind::kernel && a.work && least_.count(a.work) > 0;
  };
  const auto seconds = [](const Activity& a) { return double(a.ended - a.began) * 1e-9; };
  for (const Activity& a : activities)
    if (known(a)) seconds_of_call[a.occasion] += seconds(a);
  for (const Activity& a : activities) {
    if (!known(a) || seconds_of_call[a.occasion] <= 0) continue;
    Learnt& learnt = learnt_[a.name];
    learnt.least += least_.at(a.work) * seconds(a) / seconds_of_call[a.occasion];
    ++learnt.launches;
  }
}

void DeviceTimeCollector::add(const std::vector<Activity>& activities, int steps) {
  if (activities.empty()) return;
  learn(activities);
  std::vector<Interval> all, computing, sums, copies;
  for (const Activity& a : activities) {
    const Interval interval{a.began, a.ended};
    all.push_back(interval);
    (a.kind == Activity::Kind::kernel ? computing : a.kind == Activity::Kind::sum ? sums : copies).push_back(interval);
    if (a.kind == Activity::Kind::copy) continue;
    KernelTime& kernel = kernels_[a.name];
    ++kernel.launches, kernel.seconds += double(a.ended - a.began) * 1e-9;
  }
  std::vector<Interval> kernels = computing;
  kernels.insert(kernels.end(), sums.begin(), sums.end());
  all = merge_intervals(std::move(all)), computing = merge_intervals(std::move(computing)),
  sums = merge_intervals(std::move(sums));
  copies = merge_intervals(std::move(copies)), kernels = merge_intervals(std::move(kernels));
  sum_.steps += steps;
  if (all.empty()) return;
  sum_.seconds += double(all.back().second - all.front().first) * 1e-9;
  sum_.busy += double(length(all)) * 1e-9;
  sum_.computing += double(length(computing)) * 1e-9;
  sum_.exposed_sums += double(length_outside(sums, computing)) * 1e-9;
  sum_.exposed_copies += double(length_outside(copies, kernels)) * 1e-9;
}

DeviceTime DeviceTimeCollector::stats(std::size_t most_kernels) const {
  DeviceTime out = sum_;
  for (const auto& [name, kernel] : kernels_) {
    out.kernels.push_back(kernel);
    out.kernels.back().name = name;
    const auto learnt = learnt_.find(name);
    if (learnt != learnt_.end())
      out.kernels.back().least_seconds =
          double(kernel.launches) * learnt->second.least / double(learnt->second.launches);
  }
  std::stable_sort(out.kernels.begin(), out.kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  if (out.kernels.size() > most_kernels) out.kernels.resize(most_kernels);
  return out;
}

void DeviceHealthStats::add(const DeviceHealth& h) {
  const auto into_mean = [](double& mean, int& count, double value) {
    if (value < 0) return;
    mean = count == 0 ? value : mean + (value - mean) / (count + 1);
    ++count;
  };
  ++samples;
  into_mean(clock_mhz, clocks_, h.clock_mhz);
  into_mean(watts, powers_, h.watts);
  if (h.clock_mhz >= 0) least_clock_mhz = least_clock_mhz < 0 ? h.clock_mhz : std::min(least_clock_mhz, h.clock_mhz);
  top_clock_mhz = std::max(top_clock_mhz, h.top_clock_mhz);
  limit_watts = std::max(limit_watts, h.limit_watts);
  celsius = std::max(celsius, h.celsius);
  const auto most = [](auto& of, auto value) { of = std::max(of, value); };
  most(pcie_generation, h.pcie_generation), most(pcie_lanes, h.pcie_lanes);
  most(top_pcie_generation, h.top_pcie_generation), most(top_pcie_lanes, h.top_pcie_lanes);
  most(nvlinks, h.nvlinks), most(nvlink_rate, h.nvlink_rate);
  if (h.joules >= 0) {
    if (first_joules_ < 0) first_joules_ = h.joules;
    joules = h.joules - first_joules_;
  }
  for (const std::string& reason : h.slowed) ++slowed_count_[reason];
  for (const auto& [reason, count] : slowed_count_) slowed[reason] = double(count) / samples;
}

}  // namespace millrace
