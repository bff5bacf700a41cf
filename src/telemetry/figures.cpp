// Figures that are gathered while a run goes on.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

using namespace std::string_literals;

double LoaderFigures::capacity() const {
  return read_seconds > 0 ? double(samples) * std::max(1, workers) / read_seconds : 0;
}

void StepClock::add(double seconds) {
  const double octave = std::log2(std::max(seconds, 1e-9) / 1e-9);
  ++bins_[std::min(bins_.size() - 1, std::size_t(octave * per_octave))];
  ++count_, sum_ += seconds, longest_ = std::max(longest_, seconds);
}

double StepClock::middle_of(std::size_t bin) { return 1e-9 * std::exp2((double(bin) + 0.5) / per_octave); }

std::vector<TimeBin> StepClock::bins() const {
  std::vector<TimeBin> out;
  for (std::size_t b = 0; b < bins_.size(); ++b)
    if (bins_[b] > 0) out.push_back({middle_of(b), bins_[b]});
  return out;
}

StepTimes StepClock::figures() const {
  if (count_ == 0) return {};
  // The middle of the bin that the share of all falls in.
  const auto percentile = [&](double share) {
    std::uint64_t seen = 0;
    std::size_t bin = 0;
    while (bin + 1 < bins_.size() && double(seen += bins_[bin]) < share * double(count_)) ++bin;
    return std::min(longest_, middle_of(bin));
  };
  return {sum_ / double(count_), percentile(0.5), percentile(0.9), percentile(0.99), longest_};
}

void ScaleFigures::add(std::int64_t step, double scale) {
  if (!kept_.empty() && kept_.back().scale == scale) return;
  changes_ += !kept_.empty();
  if (kept_.size() == most_kept) kept_.erase(kept_.begin() + most_kept / 2);
  kept_.push_back({step, scale});
}

namespace {

// -1: that group has no such figure.
double from_cpu_stat(const std::string& group, const std::string& wanted, double unit) {
  std::ifstream stat(group + "/cpu.stat");
  std::string key;
  for (double value = 0; stat >> key >> value;)
    if (key == wanted) return unit * value;
  return -1;
}

// Of the control group that this process is in: version 2 has one tree, version 1 one for each list of controllers.
// Inside a container its path may be that of the host, and what is mounted be the group itself.
double throttled_seconds(const std::filesystem::path& root) {
  const std::string trees = (root / "sys/fs/cgroup").string();
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool one_tree = controllers.empty();
    if (!one_tree && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    for (const std::string& tree : one_tree ? std::vector<std::string>{""} : std::vector{"/" + controllers, "/cpu"s})
      for (const std::string& group : {path, ""s})
        if (const double seconds = one_tree ? from_cpu_stat(trees + tree + group, "throttled_usec", 1e-6)
                                            : from_cpu_stat(trees + tree + group, "throttled_time", 1e-9);
            seconds >= 0)
          return seconds;
  }
  return -1;
}

}  // namespace

ProcessFigures process_figures(const std::filesystem::path& root) {
  ProcessFigures out;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
    out.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    out.preempted = std::uint64_t(usage.ru_nivcsw);
    out.resident_bytes = std::uint64_t(usage.ru_maxrss) * 1024;
  }
  out.throttled_seconds = throttled_seconds(root);
  return out;
}

}  // namespace millrace
