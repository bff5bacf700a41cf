#include "millrace/base/host_memory.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>

#include "millrace/base/error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace host_memory_test {

// A simulated host with its own /proc and /sys.
struct FakeHost {
  const test::TemporaryFolder own;
  const std::filesystem::path& root = own.path;
  FakeHost() { put("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 800 kB\n"); }
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
};

TEST(HostMemory, EqualsThatOfTheKernelIfThereIsNoLimit) {
  const FakeHost host;
  EXPECT_EQ(host_memory(host.root).total, 1000u << 10);
  EXPECT_EQ(host_memory(host.root).available, 800u << 10);
}

TEST(HostMemory, IsLimitedByTheTightestControlGroupOfTheProcess) {
  const FakeHost host;
  host.put("proc/self/cgroup", "0::/job/step\n");
  host.put("sys/fs/cgroup/job/memory.max", fmt::format("{}", 500 << 10));
  host.put("sys/fs/cgroup/job/memory.current", fmt::format("{}", 400 << 10));
  host.put("sys/fs/cgroup/job/memory.stat",
           fmt::format("anon {}\ninactive_file {}\nactive_file {}\n", 100 << 10, 250 << 10, 50 << 10));
  host.put("sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(host_memory(host.root).total, 500u << 10);
  EXPECT_EQ(host_memory(host.root).available, 400u << 10) << "cached files can be reclaimed";
}

TEST(HostMemory, IsLimitedByControlGroupsOfVersion1) {
  const FakeHost host;
  host.put("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/slurm/job_1\n");
  host.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  host.put("sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes", fmt::format("{}", 300 << 10));
  host.put("sys/fs/cgroup/memory/slurm/job_1/memory.usage_in_bytes", fmt::format("{}", 120 << 10));
  EXPECT_EQ(host_memory(host.root).available, 180u << 10);
}

}  // namespace host_memory_test
}  // namespace millrace
