// What the kernel knows about this process and its cores.
#pragma once
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace millrace {

// What the kernel says of this process, from its start.
struct ProcessStats {
  double cpu_seconds = 0;            // of all threads
  double throttled_seconds = -1;     // held back by a quota (cgroup); -1: not known
  std::uint64_t preempted = 0;       // times that a thread lost its core to another
  std::uint64_t resident_bytes = 0;  // at most
  std::string cores = {};            // that it may run on, as the kernel lists them: "0-3,8"
  double cores_busy_seconds = -1;    // these, with whatever work, since the host's start; -1: not known
  double stolen_seconds = -1;        // the same, by the hypervisor for another machine
  ProcessStats since(const ProcessStats& before) const;
};
// root: where the kernel's /proc and /sys are.
ProcessStats process_stats(const std::filesystem::path& root = "/");
// The numbers in a list of cores as the kernel writes it: "0-3,8".
std::set<int> cores_of(const std::string& list);

}  // namespace millrace
