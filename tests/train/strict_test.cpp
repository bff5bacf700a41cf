// run.reproducible = strict: equal bits on any number of ranks.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "millrace/base/files.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/train/checkpoint/describe_checkpoint.hpp"
#include "millrace/train/step/exact_sum.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace strict_test {

// Values of very different sizes, whose float sum depends on the order.
std::vector<float> values_of(std::uint32_t seed, std::size_t count) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  std::uniform_int_distribution<int> exponent(-40, 12);
  std::vector<float> out(count);
  for (float& v : out) v = std::ldexp(mantissa(random), exponent(random));
  return out;
}

TEST(StrictSums, DoNotDependOnOrderAndGrouping) {
  constexpr std::size_t count = 1000, terms = 24;
  std::vector<std::vector<float>> all;
  for (std::uint32_t t = 0; t < terms; ++t) all.push_back(values_of(t, count));
  const auto sums = [&](int ranks, bool backwards) {
    std::vector<float> out(count);
    run_thread_world(ranks, [&](World& world) {
      const auto collective = make_host_collective(world, {});
      ExactSum sum(*collective, count);
      for (std::size_t t = 0; t < terms; ++t) {
        const std::size_t term = backwards ? terms - 1 - t : t;
        if (int(term * std::size_t(ranks) / terms) == world.rank()) sum.add(all[term].data());
      }
      sum.all_reduce_async(0);
      collective->finish();
      if (world.rank() == 0) sum.round_to(out.data());
    });
    return out;
  };
  const auto reference = sums(1, false);
  for (const int ranks : {1, 2, 3, 4})
    for (const bool backwards : {false, true}) EXPECT_EQ(sums(ranks, backwards), reference) << ranks;
  std::size_t differing = 0;  // plain sums do depend on the order, so the test can fail
  for (std::size_t i = 0; i < count; ++i) {
    long double exact = 0;
    float forwards = 0, backwards = 0;
    for (std::size_t t = 0; t < terms; ++t) {
      exact += all[t][i];
      forwards += all[t][i];
      backwards += all[terms - 1 - t][i];
    }
    differing += forwards != backwards;
    EXPECT_NEAR(reference[i], double(exact), std::abs(double(exact)) * 6e-8 + terms * 2e-18);
  }
  EXPECT_GT(differing, count / 10);
}

TEST(StrictSums, AnOverflowIsNotLost) {
  run_thread_world(1, [](World& world) {
    const auto collective = make_host_collective(world, {});
    for (const float bad : {INFINITY, -INFINITY, NAN, 1e9f}) {
      ExactSum sum(*collective, 2);
      const float values[] = {1, bad}, more[] = {2, 3};
      sum.add(values);
      sum.add(more);
      float out[2];
      sum.round_to(out);
      EXPECT_EQ(out[0], 3);
      EXPECT_FALSE(std::isfinite(out[1])) << bad;
    }
  });
}

TEST(StrictSums, OfDoublesAreExact) {
  std::vector<double> values{1e15, 1.25, -1e15, 3e-10, 7e6, 1e-17};
  ExactDouble forwards, backwards;
  for (const double v : values) forwards.add(v);
  std::reverse(values.begin(), values.end());
  for (const double v : values) backwards.add(v);
  EXPECT_EQ(forwards.parts, backwards.parts);
  EXPECT_EQ(forwards.value(), 7000001.25 + 3e-10);
  forwards.add(-INFINITY);
  EXPECT_FALSE(std::isfinite(forwards.value()));
}

// Everything that a run computes, as text.
struct Outcome {
  std::vector<std::string> steps;
  std::string tensors, validation;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(const test::TemporaryFolder& folder) {
  Outcome out;
  for (const auto& line : test::metrics_of(folder.path / "run"))
    out.steps.push_back(fmt::format("{} {} {} {}", line.at("step").dump(), line.at("loss").dump(),
                                    line.at("grad_norm").dump(), line.at("skipped").dump()));
  const std::string text =
      describe_checkpoint(CheckpointStore::list(folder.path / "run/checkpoints").back().string()).text;
  out.tensors = text.substr(text.find("  /"), text.find("intact") - text.find("  /"));
  out.validation = nlohmann::json::parse(read_file(folder.path / "run/summary.json")).at("valid_loss").dump();
  return out;
}

RunConfig strict_run() {
  RunConfig c = test::small_run(true);
  c.run.reproducible = Reproducible::strict;
  c.model.layers.insert(c.model.layers.end() - 1, "dropout 0.2");
  c.data.valid = {"synthetic:images:rows=45,shape=9x8x3,classes=4,seed=9"};
  return c;
}

void train_in(const test::TemporaryFolder& folder, RunConfig c, int ranks) {
  c.run.dir = (folder.path / "run").string();
  run_thread_world(ranks, [&](World& world) { train(world, c); });
}

TEST(Strict, RanksDoNotChangeABit) {
  const auto same_on_all_ranks = [](const char* what, const RunConfig& c) {
    const test::TemporaryFolder one;
    train_in(one, c, 1);
    const Outcome reference = outcome(one);
    ASSERT_EQ(reference.steps.size(), 10u);
    for (const int ranks : {2, 3, 4}) {
      const test::TemporaryFolder other;
      train_in(other, c, ranks);
      EXPECT_EQ(outcome(other), reference) << what << ", " << ranks << " ranks";
    }
  };
  RunConfig c = strict_run();
  same_on_all_ranks("fp32, sgd", c);
  c.optim.name = OptimizerName::adamw;
  c.optim.zero = 1;
  same_on_all_ranks("fp32, adamw, ZeRO", c);
  c.run.precision = Precision::fp16;
  c.optim.loss_scale = 1024;
  c.test.force_overflow_at = 3;
  same_on_all_ranks("fp16 with an overflow", c);
}

// Without strict the number of ranks changes bits; otherwise the test above shows nothing.
TEST(Strict, IsNeeded) {
  RunConfig c = strict_run();
  c.run.reproducible = Reproducible::setup;
  const test::TemporaryFolder one, two;
  train_in(one, c, 1);
  train_in(two, c, 2);
  EXPECT_NE(outcome(one).tensors, outcome(two).tensors);
}

TEST(Strict, AResumedRunOnOtherRanksIsEqual) {
  RunConfig c = strict_run();
  const test::TemporaryFolder reference, parts;
  c.optim.schedule = LrSchedule::constant;
  RunConfig first = c;
  first.train.steps = 7;
  train_in(reference, c, 3);
  train_in(parts, first, 1);
  train_in(parts, c, 4);
  EXPECT_EQ(outcome(parts), outcome(reference));
}

TEST(Strict, WhatItCannotDoIsRefused) {
  RunConfig c = strict_run();
  const test::TemporaryFolder folder;
  c.comm.grad_dtype = DType::bf16;
  test::expect_error(Exit::config, "comm.grad_dtype: ", [&] { train_in(folder, c, 2); });
}

}  // namespace strict_test
}  // namespace millrace
