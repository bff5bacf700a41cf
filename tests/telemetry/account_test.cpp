#include "millrace/telemetry/account.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/system/process.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace {

using nlohmann::json;

// An account whose values differ between fields and between ranks. Most values are not round.
RankAccount sample_account(int rank) {
  RankAccount r;
  r.host = "node" + std::to_string(rank);
  for (int p = 0; p < phase_count; ++p) r.seconds[std::size_t(p)] = (p + 1) / 7.0 + (rank * 5 % 3) * 10;
  for (const double seconds : r.seconds) r.wall_seconds += seconds;
  r.loader = {.batches = 11u + unsigned(rank),
              .samples = 99u + unsigned(rank),
              .bytes_read = 5'000'000'000u + unsigned(rank),
              .queue_depth_sum = 37u + unsigned(rank),
              .queue_depths = {5, 6u + unsigned(rank)},
              .wait_seconds = 0.1 + rank,
              .read_seconds = 1 / 3.0 + rank,
              .decoded = {11u + unsigned(rank), 1 / 13.0 + rank},
              .room_seconds = 1 / 7.0 + rank,
              .copy_seconds = 1 / 17.0 + rank,
              .copied_bytes = 12'345u + unsigned(rank),
              .copied_samples = 77u + unsigned(rank),
              .first_batch_seconds = 1 / 9.0 + rank,
              .workers = 3 + rank,
              .clock_reads = 17u + unsigned(rank)};
  r.step_times = {0.1 + rank, 0.2, 0.3, 0.4, 0.5};
  r.sums = {{0, 42, 4200, 0.1, 0.3 + rank, 0.2, CollectiveOp::all_reduce, 0.4 + rank, 0.7}, {-1, 42, 84, 0, 1e-3, 0}};
  r.process = {12.5 + rank, 0.25, 77, 1u << 30, "0-" + std::to_string(rank), 99.5 + rank, 0.125};
  r.network_link = {"eth" + std::to_string(rank), 1.25e9,
                    rank == 0 ? NetworkLink::Kind::interface : NetworkLink::Kind::infiniband};
  r.pace.steps = 40;
  r.pace.step = 0.1 / 3;
  r.pace.ready = {{4096, 1e-3}, {8192, 2e-3 + rank}};
  r.pace.own = {{0.03, 39}, {0.05, 1}};
  r.pace.meets = false;
  r.pace.micro_batches = 2;
  r.pace.input_pass = 1e-6 / 3;
  r.cores = 4;
  r.threads = 3 + rank;
  r.checkpoints = 2;
  r.evaluations = 5 + rank;
  r.skipped_steps = 7;
  r.scales.add(1, 65536);
  r.scales.add(9, 32768);
  r.flops = 1e9 / 3;
  r.marks = 24;
  r.mark_seconds = 3e-8;
  r.memory_limit = 8e9;
  r.faults.retries = 3u + unsigned(rank);
  r.faults.skipped_samples = 4u + unsigned(rank);
  r.faults.files = {
      {"a" + std::to_string(rank) + ".h5", 3u + unsigned(rank), 4u + unsigned(rank), rank == 1, "no luck"}};
  r.comm_busy_seconds = 2 / 3.0 + rank;
  r.comm_bytes = 6'000'000'000u + unsigned(rank);
  r.steps = 42;
  r.samples = 1500u + unsigned(rank);
  r.memory_bytes = 7'000'000'000u + unsigned(rank);
  return r;
}

TEST(Account, JsonRoundTripKeepsEveryBit) {
  for (int rank = 0; rank < 3; ++rank) {
    const RankAccount sent = sample_account(rank), got = RankAccount::from_json(Account{{sent}}.json());
    EXPECT_EQ(got.host, sent.host);
    EXPECT_EQ(got.wall_seconds, sent.wall_seconds);
    EXPECT_EQ(got.seconds, sent.seconds);
    EXPECT_EQ(got.loader.batches, sent.loader.batches);
    EXPECT_EQ(got.loader.bytes_read, sent.loader.bytes_read);
    EXPECT_EQ(got.loader.queue_depth_sum, sent.loader.queue_depth_sum);
    EXPECT_EQ(got.loader.decoded.chunks, sent.loader.decoded.chunks);
    EXPECT_EQ(got.loader.decoded.seconds, sent.loader.decoded.seconds);
    EXPECT_EQ(got.loader.wait_seconds, sent.loader.wait_seconds);
    EXPECT_EQ(got.loader.read_seconds, sent.loader.read_seconds);
    EXPECT_EQ(got.loader.clock_reads, sent.loader.clock_reads);
    EXPECT_EQ(got.loader.copy_seconds, sent.loader.copy_seconds);
    EXPECT_EQ(got.loader.copied_bytes, sent.loader.copied_bytes);
    EXPECT_EQ(got.loader.copied_samples, sent.loader.copied_samples);
    EXPECT_EQ(got.pace.input_pass, sent.pace.input_pass);
    EXPECT_EQ(got.faults.retries, sent.faults.retries);
    EXPECT_EQ(got.faults.skipped_samples, sent.faults.skipped_samples);
    ASSERT_EQ(got.faults.files.size(), 1u);
    const FileFaults &one = got.faults.files[0], &same = sent.faults.files[0];
    EXPECT_EQ(one.path, same.path);
    EXPECT_EQ(one.retries, same.retries);
    EXPECT_EQ(one.skipped_samples, same.skipped_samples);
    EXPECT_EQ(one.slow, same.slow);
    EXPECT_EQ(one.error, same.error);
    EXPECT_EQ(got.comm_busy_seconds, sent.comm_busy_seconds);
    EXPECT_EQ(got.comm_bytes, sent.comm_bytes);
    EXPECT_EQ(got.steps, sent.steps);
    EXPECT_EQ(got.samples, sent.samples);
    EXPECT_EQ(got.memory_bytes, sent.memory_bytes);
    // The comparison of the JSON covers all other fields.
    EXPECT_EQ(got.loader.queue_depths, sent.loader.queue_depths);
    EXPECT_EQ(got.loader.capacity(), sent.loader.capacity());
    EXPECT_EQ(got.sums.size(), 2u);
    EXPECT_EQ(got.scales.kept().size(), 2u);
    EXPECT_EQ(got.scales.changes(), 1u);
    EXPECT_EQ(Account{{got}}.json(), Account{{sent}}.json());
  }
}

TEST(Account, ReportsWhatTheLoaderCanDeliverAndTheStepCanConsume) {
  RankAccount r;
  r.steps = 100;
  r.step_times.mean = 0.03;  // including 0.01 of waiting
  r.loader = {.batches = 100, .samples = 3200, .bytes_read = 3200 * 500'000ull, .queue_depths = {100}};
  r.loader.wait_seconds = 1;
  r.loader.read_seconds = 3;
  r.loader.decoded.seconds = 1;
  r.loader.room_seconds = 1;
  r.loader.workers = 2;
  const std::string table = Account{{r, r}}.table();
  EXPECT_NE(
      table.find("can deliver 4.27 k samples/s, 2.133 GB/s; the step can consume 3.2 k samples/s, 1.600 GB/s; first"),
      table.npos)
      << table;
  EXPECT_NE(
      table.find(
          "time of the loader's workers: reading 50 % (reading alone: 6.4 k samples/s, 3.200 GB/s), decoding 25 % "
          "(decoding alone: 12.8 k samples/s, 6.400 GB/s), waiting for a free slot 25 %\n"),
      table.npos)
      << table;
}

TEST(Account, ReportsTheInputPathOnlyIfItWasTimed) {
  RankAccount r;
  r.loader = {.batches = 100, .samples = 3200, .bytes_read = 3200 * 500'000ull, .queue_depths = {100}};
  const std::string without = Account{{r, r}}.table();
  EXPECT_EQ(without.find("copies to the device"), without.npos);
  EXPECT_EQ(without.find("input pass"), without.npos);
  r.loader.copy_seconds = 0.5;
  r.loader.copied_bytes = 4'000'000'000;
  r.loader.copied_samples = 7000;
  r.pace.steps = 100;
  r.pace.input_pass = 1e-4;
  const std::string table = Account{{r, r}}.table();
  EXPECT_NE(table.find("copies to the device alone: 28 k samples/s, 16.000 GB/s\n"), table.npos) << table;
  EXPECT_NE(table.find("the input pass alone: 20 k samples/s, 10.000 GB/s\n"), table.npos) << table;
}

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
  const ProcessStats before = {1, 0.5, 10, 100, "0-1", 5, 1}, later = {4, 0.75, 30, 200, "0-1", 12, 1.5};
  const ProcessStats between = later.since(before);
  EXPECT_EQ(between.cpu_seconds, 3);
  EXPECT_EQ(between.throttled_seconds, 0.25);
  EXPECT_EQ(between.preempted, 20u);
  EXPECT_EQ(between.resident_bytes, 200u) << "a maximum, not a difference";
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

TEST(Account, SpreadsOverTheRanksAreComputedPhaseByPhase) {
  Account all;
  // Ranks 0, 1 and 2 have 0, 20 and 10 s more in each phase.
  for (int rank = 0; rank < 3; ++rank) all.ranks.push_back(sample_account(rank));
  const json j = json::parse(all.json());
  ASSERT_EQ(j.at("ranks").size(), 3u);
  double least = 0, median = 0, most = 0;
  for (int p = 0; p < phase_count; ++p) {
    const json& phase = j.at("phases").at(name_of(Phase(p)));
    EXPECT_EQ(phase.at("min"), (p + 1) / 7.0);
    EXPECT_EQ(phase.at("median"), (p + 1) / 7.0 + 10);
    EXPECT_EQ(phase.at("max"), (p + 1) / 7.0 + 20);
    EXPECT_EQ(phase.at("min_rank"), 0);
    EXPECT_EQ(phase.at("max_rank"), 1);
    least += phase.at("min").get<double>();
    median += phase.at("median").get<double>();
    most += phase.at("max").get<double>();
  }
  EXPECT_EQ(j.at("phases").size(), std::size_t(phase_count));
  EXPECT_NEAR(j.at("wall_seconds").at("min"), least, 1e-9 * least);
  EXPECT_NEAR(j.at("wall_seconds").at("median"), median, 1e-9 * median);
  EXPECT_NEAR(j.at("wall_seconds").at("max"), most, 1e-9 * most);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(j.at("ranks").at(std::size_t(rank)).at("host"), all.ranks[std::size_t(rank)].host);
  const std::string table = all.table();
  EXPECT_NE(table.find("  0 (node0), 1 (node1)\n"), table.npos) << table;
  EXPECT_NE(table.find("bucket 0: 100 B, ready at 9.52 ms of a step, queued 2.38 ms, all-reduce 7.14 ms (bus bandwidth "
                       "0.00 GB/s), needed at 16.67 ms, exposed 4.76 ms\n"),
            table.npos)
      << table;
}

TEST(Account, TableHasALineForEachPhaseAndItsSharesSumToTheWhole) {
  Account all;
  for (int rank = 0; rank < 3; ++rank) all.ranks.push_back(sample_account(rank));
  std::istringstream in(all.table());
  double shares = 0;
  int phases = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double least = 0, median = 0, most = 0, share = 0;
    if (!(words >> name >> least >> median >> most >> share)) continue;
    EXPECT_EQ(name, name_of(Phase(phases)));
    EXPECT_NEAR(least, (phases + 1) / 7.0, 6e-4);
    EXPECT_NEAR(median, (phases + 1) / 7.0 + 10, 6e-4);
    EXPECT_NEAR(most, (phases + 1) / 7.0 + 20, 6e-4);
    shares += share;
    ++phases;
  }
  EXPECT_EQ(phases, phase_count);
  EXPECT_NEAR(shares, 100, 0.1);
  EXPECT_NE(all.table().find("on 3 ranks\n"), std::string::npos);
}

TEST(Account, ReportsStepsLoaderBucketsAndMemory) {
  const std::string table = Account{{sample_account(0), sample_account(1)}}.table();
  for (const char* part :
       {"step time, ms: mean 100.00, median 200.00, p90 300.00, p99 400.00, max 500.00; 3.33 GFLOP/s per rank; "
        "timing overhead: 24 timestamps per step, 30 ns each",
        "loader: 3 workers per rank can deliver ", "first batch after 1.111 s",
        "communication of 1 bucket: busy 0.301 s, of which exposed 0.200 s, overlapped 0.101 s", "bucket 0: 100 B",
        "loss scale: 7 steps skipped for an overflow, 1 change, 32768 at the end", "at most 1.00 GiB resident"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " is not in\n" << table;
}

TEST(Account, AllGatherAndReduceScatterHaveTheirOwnBusBandwidth) {
  Account all{{sample_account(0), sample_account(1)}};
  for (RankAccount& r : all.ranks)
    r.sums = {{0, 10, 10'000'000'000, 0, 2, 0, CollectiveOp::reduce_scatter},
              {0, 10, 10'000'000'000, 0, 4, 0, CollectiveOp::all_gather}};
  const Account got = Account::from_json(all.json());
  EXPECT_EQ(got.ranks[1].sums[0].op, CollectiveOp::reduce_scatter);
  EXPECT_EQ(got.ranks[1].sums[1].op, CollectiveOp::all_gather);
  const std::string table = got.table();
  for (const char* part : {"communication of 1 bucket: ", "reduce-scatter 200.00 ms (bus bandwidth 2.50 GB/s)",
                           "all-gather 400.00 ms (bus bandwidth 1.25 GB/s)"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " is not in\n" << table;
}

TEST(Account, CollectivesOfOldSummariesAreReadAsAllReduces) {
  std::string text = Account{{sample_account(0), sample_account(1)}}.json();
  const std::string operation = "\"op\":\"sum\",";
  for (std::size_t at; (at = text.find(operation)) != text.npos;) text.erase(at, operation.size());
  const Account got = Account::from_json(text);
  EXPECT_EQ(got.ranks[0].sums[0].op, CollectiveOp::all_reduce);
  EXPECT_EQ(got.table(), (Account{{sample_account(0), sample_account(1)}}.table()));
}

TEST(StepTimeHistogram, PercentilesAreWithinOneBin) {
  StepTimeHistogram clock;
  EXPECT_EQ(clock.stats().p99, 0);
  for (int i = 1; i <= 1000; ++i) clock.add(i * 1e-4);
  const StepTimeStats t = clock.stats();
  EXPECT_NEAR(t.mean, 0.05005, 1e-9);
  EXPECT_NEAR(t.p50, 0.05, 0.05 * 0.045);
  EXPECT_NEAR(t.p90, 0.09, 0.09 * 0.045);
  EXPECT_NEAR(t.p99, 0.099, 0.099 * 0.045);
  EXPECT_EQ(t.longest, 0.1);
  clock.add(0);
  clock.add(1e9);  // this and 0 are in the outermost bins
  EXPECT_EQ(clock.stats().longest, 1e9);
}

TEST(Account, LossScaleChangesAreCountedExactlyAndTheLastOnesAreKept) {
  RankAccount r;
  r.skipped_steps = 1;
  for (int step = 1; step <= 1000; ++step) r.scales.add(step, step <= 2 ? 1 : step);  // step 2 changes nothing
  const RankAccount got = RankAccount::from_json(Account{{r}}.json());
  EXPECT_EQ(got.scales.changes(), 998u);
  EXPECT_EQ(got.scales.last(), 1000);
  const auto& kept = got.scales.kept();
  ASSERT_EQ(kept.size(), LossScaleStats::most_kept);
  EXPECT_EQ(kept[0].step, 1);
  EXPECT_EQ(kept[31].step, 33);
  EXPECT_EQ(kept[32].step, 1000 - 31);
  const std::string table = Account{{got}}.table();
  EXPECT_NE(table.find("loss scale: 1 step skipped for an overflow, 998 changes, 1000 at the end"), table.npos)
      << table;
}

TEST(Account, InvalidUtf8InPathsIsReplaced) {
  RankAccount sent = sample_account(0);
  sent.host = "caf\xe9";  // Latin-1
  sent.faults.files[0].path = "\xff.h5";
  const RankAccount got = RankAccount::from_json(Account{{sent}}.json());
  EXPECT_EQ(got.host, "caf\ufffd");
  EXPECT_EQ(got.faults.files[0].path, "\ufffd.h5");
}

TEST(Account, LossScalesOfOlderFilesAreRead) {
  json j = json::parse(Account{{sample_account(0)}}.json());
  j["ranks"][0].erase("loss_scale_changes");
  j["ranks"][0].erase("loss_scale");
  const RankAccount got = Account::from_json(j.dump()).ranks.at(0);
  EXPECT_EQ(got.scales.changes(), 1u);
  EXPECT_EQ(got.scales.last(), 32768);
}

TEST(Account, TheAccountOfAnIdleRankIsValid) {
  const RankAccount got = RankAccount::from_json(Account{{RankAccount{}}}.json());
  EXPECT_EQ(got.loader.queue_depth_sum, 0u);
  EXPECT_EQ(got.wall_seconds, 0);
  EXPECT_EQ(Account{{RankAccount{}}}.table().find("nan"), std::string::npos);
}

}  // namespace
}  // namespace millrace
