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
    return a.kind == Activity::Kind::kernel && a.label && roofline_.count(a.label) > 0;
  };
  const auto seconds = [](const Activity& a) { return double(a.ended - a.began) * 1e-9; };
  for (const Activity& a : activities)
    if (known(a)) seconds_of_call[a.label_instance] += seconds(a);
  for (const Activity& a : activities) {
    if (!known(a) || seconds_of_call[a.label_instance] <= 0) continue;
    Learnt& learnt = learnt_[a.name];
    learnt.seconds += roofline_.at(a.label) * seconds(a) / seconds_of_call[a.label_instance];
    ++learnt.launches;
  }
}

void DeviceTimeCollector::add(const std::vector<Activity>& activities, int steps) {
  if (activities.empty()) return;
  learn(activities);
  std::vector<Interval> all, computing, collectives, copies;
  for (const Activity& a : activities) {
    const Interval interval{a.began, a.ended};
    all.push_back(interval);
    (a.kind == Activity::Kind::kernel ? computing
     : a.kind == Activity::Kind::sum  ? collectives
                                      : copies)
        .push_back(interval);
    if (a.kind == Activity::Kind::copy) continue;
    KernelTime& kernel = kernels_[a.name];
    ++kernel.launches;
    kernel.seconds += double(a.ended - a.began) * 1e-9;
  }
  std::vector<Interval> kernels = computing;
  kernels.insert(kernels.end(), collectives.begin(), collectives.end());
  for (std::vector<Interval>* list : {&all, &computing, &collectives, &copies, &kernels})
    *list = merge_intervals(std::move(*list));
  sum_.steps += steps;
  if (all.empty()) return;
  sum_.seconds += double(all.back().second - all.front().first) * 1e-9;
  sum_.busy += double(length(all)) * 1e-9;
  sum_.computing += double(length(computing)) * 1e-9;
  sum_.exposed_sums += double(length_outside(collectives, computing)) * 1e-9;
  sum_.exposed_copies += double(length_outside(copies, kernels)) * 1e-9;
}

DeviceTime DeviceTimeCollector::stats(std::size_t max_kernels) const {
  DeviceTime out = sum_;
  for (const auto& [name, kernel] : kernels_) {
    out.kernels.push_back(kernel);
    out.kernels.back().name = name;
    const auto learnt = learnt_.find(name);
    if (learnt != learnt_.end())
      out.kernels.back().least_seconds =
          double(kernel.launches) * learnt->second.seconds / double(learnt->second.launches);
  }
  std::stable_sort(out.kernels.begin(), out.kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  if (out.kernels.size() > max_kernels) out.kernels.resize(max_kernels);
  return out;
}

}  // namespace millrace
