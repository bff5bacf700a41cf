// Accounts are written as JSON and read back, also those that an older version wrote.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "telemetry/sample_account.hpp"

namespace millrace {
namespace account_json_test {

using nlohmann::json;
using test::sample_account;

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

TEST(Account, CollectivesOfOldSummariesAreReadAsAllReduces) {
  std::string text = Account{{sample_account(0), sample_account(1)}}.json();
  const std::string operation = "\"op\":\"sum\",";
  for (std::size_t at; (at = text.find(operation)) != text.npos;) text.erase(at, operation.size());
  const Account got = Account::from_json(text);
  EXPECT_EQ(got.ranks[0].sums[0].op, CollectiveOp::all_reduce);
  EXPECT_EQ(got.table(), (Account{{sample_account(0), sample_account(1)}}.table()));
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

}  // namespace account_json_test
}  // namespace millrace
