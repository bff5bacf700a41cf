// Reads /proc and the control group of this process.
#include "millrace/system/process.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace millrace {

using namespace std::string_literals;

namespace {

// A value from the cpu.stat of a control group; -1: the group has no such value.
double from_cpu_stat(const std::string& group, const std::string& wanted, double unit) {
  std::ifstream stat(group + "/cpu.stat");
  std::string key;
  for (double value = 0; stat >> key >> value;)
    if (key == wanted) return unit * value;
  return -1;
}

// Seconds that the CPU quota of this process's control group throttled it. Version 2 of control groups has one tree,
// version 1 one for each list of controllers. Inside a container, the path of the group may be that on the host, while
// the mounted tree is the group itself.
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

void read_cores(const std::filesystem::path& root, ProcessStats& out) {
  const std::string key = "Cpus_allowed_list:";
  std::ifstream status(root / "proc/self/status");
  for (std::string line; out.cores.empty() && std::getline(status, line);)
    if (line.starts_with(key)) std::istringstream(line.substr(key.size())) >> out.cores;
  const std::set<int> mine = cores_of(out.cores);
  std::set<int> found;
  double busy = 0, stolen = 0;  // clock ticks
  std::ifstream stat(root / "proc/stat");
  for (std::string line; std::getline(stat, line);) {
    int core = 0;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, steal = 0;
    if (std::sscanf(line.c_str(), "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &core, &user, &nice, &system, &idle,
                    &waiting, &interrupts, &soft, &steal) == 9 &&
        mine.count(core)) {
      found.insert(core);
      busy += user + nice + system + interrupts + soft;
      stolen += steal;
    }
  }
  if (found.empty() || found != mine) return;
  const double tick = 1.0 / double(::sysconf(_SC_CLK_TCK));
  out.cores_busy_seconds = busy * tick;
  out.stolen_seconds = stolen * tick;
}

}  // namespace

std::set<int> cores_of(const std::string& list) {
  std::set<int> out;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    for (int core = first; read > 0 && core <= (read == 2 ? last : first); ++core) out.insert(core);
  }
  return out;
}

namespace {

// Of this process, now.
struct Pages {
  std::uint64_t resident = 0;
  std::uint64_t part = 0;  // if each of N processes counts 1/N of a page
};
Pages read_pages(const std::filesystem::path& root) {
  std::ifstream in(root / "proc/self/smaps_rollup");
  Pages out;
  for (std::string line; std::getline(in, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "Rss: %llu kB", &kib) == 1) out.resident = kib * 1024;
    if (std::sscanf(line.c_str(), "Pss: %llu kB", &kib) == 1) out.part = kib * 1024;
  }
  return out;
}

}  // namespace

std::uint64_t memory_in_use(const std::filesystem::path& root) { return read_pages(root).part; }

ProcessStats process_stats(const std::filesystem::path& root) {
  ProcessStats out;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
    out.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    out.preempted = std::uint64_t(usage.ru_nivcsw);
    out.resident_bytes = std::uint64_t(usage.ru_maxrss) * 1024;
  }
  const Pages pages = read_pages(root);
  out.shared_bytes = pages.resident - std::min(pages.resident, pages.part);
  out.throttled_seconds = throttled_seconds(root);
  read_cores(root, out);
  return out;
}

ProcessStats ProcessStats::since(const ProcessStats& before) const {
  ProcessStats out = *this;
  const auto subtract = [](double& now, double then) { now = now < 0 || then < 0 ? -1 : std::max(0.0, now - then); };
  subtract(out.cpu_seconds, before.cpu_seconds);
  subtract(out.throttled_seconds, before.throttled_seconds);
  subtract(out.cores_busy_seconds, before.cores_busy_seconds);
  subtract(out.stolen_seconds, before.stolen_seconds);
  out.preempted -= std::min(out.preempted, before.preempted);
  return out;
}

}  // namespace millrace
