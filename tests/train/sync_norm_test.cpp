// model.sync_batch_norm: micro-batches on several ranks equal one micro-batch of all their rows on one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/base/files.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/train/distributed/buckets.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace sync_norm_test {

using test::metrics_of;
using test::small_run;
using test::Tensors;
using test::tensors_of;

// Two epochs of two steps of 22 rows and one of 3 rows, so that ranks have unequal rows, and two of three have none in
// every third step. One norm takes in a ReLU, one a residual and a ReLU.
RunConfig sync_run(bool sync) {
  RunConfig c = small_run(true, "47");
  c.model.layers = {
      "conv 8 3 pad=same as=a", "batchnorm", "relu", "conv 8 3 pad=same", "batchnorm", "add a", "relu", "globalpool",
      "linear outputs"};
  c.model.sync_batch_norm = sync;
  c.train.global_batch = 22;
  c.optim.schedule = LrSchedule::constant;
  return c;
}

struct Result {
  std::vector<nlohmann::json> lines;
  Tensors tensors;
};

Result result_of(RunConfig c, int ranks, std::int64_t micro_batch) {
  const test::TemporaryFolder folder;
  c.run.dir = folder.path.string();
  c.train.micro_batch = micro_batch;
  run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
  return {metrics_of(folder.path), tensors_of(folder.path)};
}

// The largest difference of the losses, relative, and of the weights and running statistics, relative to the largest
// value of each tensor.
struct Difference {
  double loss = 0, tensors = 0;
};
Difference difference(const Result& a, const Result& b) {
  Difference out;
  EXPECT_EQ(a.lines.size(), b.lines.size());
  for (std::size_t i = 0; i < std::min(a.lines.size(), b.lines.size()); ++i)
    out.loss = std::max(out.loss, std::abs(double(a.lines[i]["loss"]) / double(b.lines[i]["loss"]) - 1));
  for (const auto& [name, expected] : b.tensors) {
    if (!name.starts_with("/parameters") && !name.starts_with("/running")) continue;
    const auto& actual = a.tensors.at(name);
    double scale = 0, most = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(std::isfinite(actual[i])) << name;
      scale = std::max(scale, std::abs(double(expected[i])));
      most = std::max(most, std::abs(double(actual[i]) - double(expected[i])));
    }
    out.tensors = std::max(out.tensors, most / scale);
  }
  return out;
}

// Sums of floats in another order, after six steps.
void expect_equal(const Result& a, const Result& b, const std::string& what) {
  const Difference d = difference(a, b);
  EXPECT_LT(d.loss, 2e-5) << what;
  EXPECT_LT(d.tensors, 2e-4) << what;
}

TEST(SyncNorm, RanksEqualOneRankWithTheWholeBatch) {
  const Result whole = result_of(sync_run(false), 1, 22);
  ASSERT_EQ(whole.lines.size(), 6u);
  const Difference alone = difference(result_of(sync_run(true), 1, 22), whole);
  EXPECT_TRUE(alone.loss == 0 && alone.tensors == 0) << "1 rank";
  expect_equal(result_of(sync_run(true), 2, 12), whole, "2 ranks");
  expect_equal(result_of(sync_run(true), 3, 8), whole, "3 ranks");
  const Difference without = difference(result_of(sync_run(false), 3, 8), whole);
  EXPECT_GT(without.loss, 1e-3);
  EXPECT_GT(without.tensors, 1e-2);
}

TEST(SyncNorm, WorksWithFusionRecomputationZeroAndSixteenBits) {
  const Result whole = result_of(sync_run(false), 1, 22);
  for (const int level : {0, 3}) {  // level 3 contains what level 2 does
    RunConfig c = sync_run(true);
    c.model.fusion = level;
    expect_equal(result_of(c, 3, 8), whole, "level " + std::to_string(level));
  }
  RunConfig again = sync_run(true);
  again.train.recompute = Recompute::full;
  expect_equal(result_of(again, 2, 12), whole, "recomputation");
  RunConfig zero = sync_run(true);
  zero.optim.zero = 1;
  zero.comm.bucket_size = 256;
  expect_equal(result_of(zero, 3, 8), whole, "ZeRO");
  RunConfig half = sync_run(true), half_whole = sync_run(false);
  half.run.precision = half_whole.run.precision = Precision::bf16;
  const Difference d = difference(result_of(half, 3, 8), result_of(half_whole, 1, 22));
  EXPECT_LT(d.loss, 1e-2);  // bf16 keeps 8 bits
}

// Five micro-batches on three ranks: the k-th ones of the ranks are normalised together, and the last rank has one
// less.
TEST(SyncNorm, RanksWithFewerMicroBatchesTakePart) {
  RunConfig c = sync_run(true);
  c.comm.bucket_size = 256;  // so that all-reduces of the gradient begin in the backward pass
  const Result plain = result_of(c, 3, 5);
  ASSERT_EQ(plain.lines.size(), 6u);
  c.comm.overlap = false;
  EXPECT_EQ(difference(result_of(c, 3, 5), plain).tensors, 0) << "no overlap";
  c.comm.overlap = true;
  c.comm.progress = CollectiveOptions::Progress::thread;
  c.optim.zero = 1;
  EXPECT_EQ(difference(result_of(c, 3, 5), plain).tensors, 0) << "ZeRO, with a progress thread";
}

// Four micro-batches: on four ranks all are normalised together, on two ranks two pairs.
TEST(SyncNorm, TheKthMicroBatchesOfTheRanksAreNormalisedTogether) {
  RunConfig c = sync_run(true);
  c.data.train = {"synthetic:images:rows=48,shape=9x8x3,classes=4"};
  c.train.global_batch = 16;
  const Result pairs = result_of(c, 2, 4), together = result_of(c, 4, 4);
  RunConfig off = c;
  off.model.sync_batch_norm = false;
  expect_equal(together, result_of(off, 1, 16), "4 ranks");
  EXPECT_GT(difference(pairs, together).loss, 1e-3);
}

// An exchange of 272 bytes takes 11 ms, much longer than the passes of this network.
TEST(SyncNorm, TheWaitsAreCommunication) {
  const test::TemporaryFolder folder;
  RunConfig c = sync_run(true);
  c.run.dir = folder.path.string();
  c.train.micro_batch = 12;
  c.train.steps = 2;
  c.test.all_reduce_delay = 200;  // seconds per MB: long beside the arithmetic, also for a sanitizer
  run_thread_world(2, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
  const auto summary = nlohmann::json::parse(read_file(folder.path / "summary.json"));
  for (const RankAccount& rank : Account::from_json(summary.at("account").dump()).ranks) {
    double exposed = 0;
    std::uint64_t times = 0;
    for (const CollectiveOpStats& s : rank.sums)
      if (s.tag == norm_forward_tag || s.tag == norm_backward_tag) {
        exposed += s.exposed;
        times += s.times;
      }
    EXPECT_EQ(times, 8u) << "two norms, two directions, two steps";
    EXPECT_GT(exposed, 8 * 0.050);
    EXPECT_GT(rank.seconds_in(Phase::communication), exposed);
    EXPECT_LT(rank.seconds_in(Phase::forward) + rank.seconds_in(Phase::backward), exposed / 2);
  }
}

TEST(SyncNorm, WhatCannotBeIsRefused) {
  RunConfig without = sync_run(true);
  without.model.layers = {"globalpool", "linear outputs"};
  test::expect_error(Exit::config, "model.sync_batch_norm: the network has no batch norm. remove the key",
                     [&] { result_of(without, 2, 8); });
  RunConfig strict = sync_run(true);
  strict.run.reproducible = Reproducible::strict;
  test::expect_error(Exit::config, "model.sync_batch_norm: run.reproducible = strict",
                     [&] { result_of(strict, 2, 8); });
}

}  // namespace sync_norm_test
}  // namespace millrace
