// What the kernel reports about this process and its cores.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace millrace {

// Counted since the process started, unless stated otherwise.
struct ProcessStats {
  double cpu_seconds = 0;            // of all threads
  double throttled_seconds = -1;     // a CPU quota (cgroup) throttled the process; -1: not known
  std::uint64_t preempted = 0;       // how often a thread lost its core to another one
  std::uint64_t resident_bytes = 0;  // the maximum so far; pages that are shared with other processes count in full
  // Now: what other processes count of this process's pages, if each of N processes counts 1/N of a page. Reading it
  // takes about 10 ms per GiB.
  std::uint64_t shared_bytes = 0;
  std::string cores = {};          // the cores that the process may use, as the kernel lists them: "0-3,8"
  double cores_busy_seconds = -1;  // these cores were busy with any work, since the host started; -1: not known
  double stolen_seconds = -1;      // the hypervisor gave them to another machine, since the host started
  // The most memory that this process used, if each process counts its part of shared pages.
  std::uint64_t used_bytes() const { return resident_bytes - std::min(resident_bytes, shared_bytes); }
  // The difference from an earlier measurement; the bytes and cores are those of the later one.
  ProcessStats since(const ProcessStats& before) const;
};
// root: where the kernel's /proc and /sys are mounted.
ProcessStats process_stats(const std::filesystem::path& root = "/");
// Bytes that this process uses now, if each of N processes counts 1/N of a shared page. 0: not known.
std::uint64_t memory_in_use(const std::filesystem::path& root = "/");

// The numbers in a list of cores as the kernel writes it: "0-3,8".
std::set<int> cores_of(const std::string& list);

}  // namespace millrace
