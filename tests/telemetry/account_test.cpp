#include "millrace/telemetry/account.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "telemetry/sample_account.hpp"

namespace millrace {
namespace account_test {

using nlohmann::json;
using test::sample_account;

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
        "loss scale: 7 steps skipped for an overflow, 1 change, 32768 at the end", "at most 1.00 GiB used"})
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

}  // namespace account_test
}  // namespace millrace
