// What an account says about the machine: network links, the CPU quota, and other programs on the same cores.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/system/process.hpp"
#include "millrace/telemetry/account.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace account_machine_test {

TEST(Account, TheFastestNetworkLinkThatIsUpIsFound) {
  const test::TemporaryFolder root;
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file = root / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  };
  EXPECT_EQ(fastest_network_link(root / "nowhere").name, "");
  write("class/net/lo/operstate", "unknown");
  write("class/net/docker0/operstate", "up");
  write("class/net/docker0/speed", "40000");
  for (const char* hardware : {"eth0/device", "eth1/device", "eth2/device", "bond0/bonding"})
    std::filesystem::create_directories(root / (std::string("class/net/") + hardware));
  write("class/net/eth0/operstate", "up");
  write("class/net/eth0/speed", "-1");  // virtual interfaces report this speed
  EXPECT_EQ(fastest_network_link(root / "").rate, 0);
  write("class/net/eth1/operstate", "up");
  write("class/net/eth1/speed", "10000");
  write("class/net/eth2/operstate", "down");
  write("class/net/eth2/speed", "100000");
  NetworkLink best = fastest_network_link(root / "");
  EXPECT_EQ(best.name, "eth1");
  EXPECT_EQ(best.rate, 1.25e9);
  EXPECT_EQ(best.kind, NetworkLink::Kind::interface);
  write("class/net/bond0/operstate", "up");
  write("class/net/bond0/speed", "20000");
  EXPECT_EQ(fastest_network_link(root / "").name, "bond0");
  write("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write("class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)");
  write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write("class/infiniband/mlx5_1/ports/1/rate", "200 Gb/sec (4X HDR)");
  best = fastest_network_link(root / "");
  EXPECT_EQ(best.name, "mlx5_0");
  EXPECT_EQ(best.rate, 12.5e9);
  EXPECT_EQ(best.kind, NetworkLink::Kind::infiniband);
}

TEST(Account, CpuQuotaTimeIsReadFromBothControlGroupVersions) {
  struct Case {
    const char *groups, *file, *text;
    double seconds;
  };
  const char* both = "12:cpuset:/a\n4:cpu,cpuacct:/job/step\n1:name=systemd:/a\n0::/a\n";
  const char* first = "nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000\n";
  const char* second = "usage_usec 77\nnr_throttled 3\nthrottled_usec 1500000\n";
  for (const Case& c :
       {Case{"0::/job/step\n", "job/step", second, 1.5}, Case{"0::/\n", ".", second, 1.5},
        Case{"0::/of/the/host\n", ".", second, 1.5}, Case{both, "cpu,cpuacct/job/step", first, 2.5},
        Case{both, "cpu/job/step", first, 2.5}, Case{both, "cpu,cpuacct", first, 2.5},
        Case{"3:cpu:/\n0::/\n", "cpu", first, 2.5}, Case{both, "cpuset/a", first, -1}, Case{"", ".", second, -1},
        Case{"damaged\n", ".", second, -1}, Case{"0::/\n", ".", "usage_usec 77\n", -1}}) {
    const test::TemporaryFolder root;
    const std::filesystem::path group = root.path / "sys/fs/cgroup" / c.file;
    std::filesystem::create_directories(group);
    std::filesystem::create_directories(root.path / "proc/self");
    std::ofstream(group / "cpu.stat") << c.text;
    std::ofstream(root.path / "proc/self/cgroup") << c.groups;
    EXPECT_DOUBLE_EQ(process_stats(root.path).throttled_seconds, c.seconds) << c.groups << c.file;
  }
}

TEST(Account, SharedPagesCountInPart) {
  const test::TemporaryFolder root;
  std::filesystem::create_directories(root.path / "proc/self");
  EXPECT_EQ(process_stats(root.path).shared_bytes, 0u);
  std::ofstream(root.path / "proc/self/smaps_rollup") << "55d0-7ffc ---p 00000000 00:00 0  [rollup]\nRss:      300 kB\n"
                                                         "Pss:      120 kB\nPss_Anon:  100 kB\nPss_Shmem:  20 kB\n";
  EXPECT_EQ(process_stats(root.path).shared_bytes, 180u * 1024);
  // A page that this process shares with its child.
  constexpr std::size_t bytes = 32 << 20;
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memset(shared, 1, bytes);
  const std::uint64_t alone = process_stats().shared_bytes;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::memset(shared, 2, bytes);
    [[maybe_unused]] const auto done = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::uint64_t together = process_stats().shared_bytes;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::munmap(shared, bytes);
  for (const int end : ready) ::close(end);
  EXPECT_GE(together, alone + bytes / 4);  // half of them, less other pages that are no longer shared
}

TEST(Account, CoreContentionIsReadFromTheKernel) {
  const test::TemporaryFolder root;
  std::filesystem::create_directories(root.path / "proc/self");
  const auto write = [&](const char* allowed, const char* cores) {
    std::ofstream(root.path / "proc/self/status") << "Name:\tx\nCpus_allowed_list:\t" << allowed << "\n";
    std::ofstream(root.path / "proc/stat") << "cpu  1 2 3 4\n" << cores << "intr 5\n";
  };
  const double tick = 1.0 / double(::sysconf(_SC_CLK_TCK));
  const char* four =
      "cpu0 100 10 20 999 7 1 2 30 5 0\ncpu1 1000 0 0 9 0 0 0 0 0 0\ncpu2 200 0 0 9 0 0 0 10 0 0\ncpu10 400 0 0 9 0 0 "
      "0 0 0 0\n";
  write("0,2,10", four);
  const ProcessStats read = process_stats(root.path);
  EXPECT_EQ(read.cores, "0,2,10");
  EXPECT_DOUBLE_EQ(read.cores_busy_seconds, 733 * tick) << "neither idle nor waiting for a disk";
  EXPECT_DOUBLE_EQ(read.stolen_seconds, 40 * tick);
  write("0-2", four);
  EXPECT_DOUBLE_EQ(process_stats(root.path).cores_busy_seconds, 1333 * tick);
  for (const char* unknown : {"0-3", "", "none"}) {
    write(unknown, four);
    EXPECT_EQ(process_stats(root.path).cores_busy_seconds, -1) << unknown;
  }
  const ProcessStats before = {1, 0.5, 10, 100, 90, "0-1", 5, 1}, later = {4, 0.75, 30, 200, 20, "0-1", 12, 1.5};
  const ProcessStats between = later.since(before);
  EXPECT_EQ(between.cpu_seconds, 3);
  EXPECT_EQ(between.throttled_seconds, 0.25);
  EXPECT_EQ(between.preempted, 20u);
  EXPECT_EQ(between.resident_bytes, 200u) << "a maximum, not a difference";
  EXPECT_EQ(between.used_bytes(), 180u);
  EXPECT_EQ(between.cores_busy_seconds, 7);
  EXPECT_EQ(between.stolen_seconds, 0.5);
  EXPECT_EQ(later.since({}).cores_busy_seconds, -1) << "not known before";
  std::vector<RankAccount> ranks(3);
  for (RankAccount& r : ranks) {  // ranks 0 and 1 share two cores
    r.host = "a";
    r.wall_seconds = 4;
    r.process = between;
  }
  ranks[2].process.cores = "2";
  EXPECT_DOUBLE_EQ(core_contention(ranks, 0).cores, 2);
  EXPECT_DOUBLE_EQ(core_contention(ranks, 0).others, 0.25);
  EXPECT_DOUBLE_EQ(core_contention(ranks, 0).stolen, 0.125);
  EXPECT_DOUBLE_EQ(core_contention(ranks, 0).share(), 0.1875);
  EXPECT_DOUBLE_EQ(core_contention(ranks, 2).others, 1);
  ranks[2].process.cores = "1";  // now rank 2 uses one of these two cores
  EXPECT_DOUBLE_EQ(core_contention(ranks, 0).others, 0);
  EXPECT_DOUBLE_EQ(core_contention(ranks, 2).others, (7 - 3 - 2 * 1.5) / 4);
  ranks[2].process.cores = "2";
  ranks[0].process.cores_busy_seconds = -1;
  EXPECT_EQ(core_contention(ranks, 0).share(), 0);
}

}  // namespace account_machine_test
}  // namespace millrace
