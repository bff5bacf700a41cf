// Trainings with mixup and cutmix: they resume exactly, do not depend on the number of ranks at a fixed micro-batch,
// and are refused where there is nothing to mix.
#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace mix_test {

using test::small_run;
using test::Tensors;

RunConfig mixed_run(double mixup, double cutmix) {
  RunConfig c = small_run(true);
  c.train.mixup = mixup;
  c.train.cutmix = cutmix;
  return c;
}

TEST(Mix, RanksAndAccumulationAreInterchangeableAtAFixedMicroBatch) {
  const auto reference = test::run(mixed_run(0.2, 1), 1, 8), plain = test::run(small_run(true), 1, 8);
  const double first = reference[0]["grad_norm"];
  EXPECT_GT(std::abs(double(plain[0]["grad_norm"]) - first), 0.01 * first);
  for (const int ranks : {2, 3}) {
    const auto other = test::run(mixed_run(0.2, 1), ranks, 8);
    ASSERT_EQ(other.size(), reference.size());
    EXPECT_NEAR(double(other[0]["grad_norm"]), first, 2e-5 * first);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(double(other[i]["loss"]), double(reference[i]["loss"]), 1e-4 * double(reference[i]["loss"])) << i;
  }
}

TEST(Mix, AResumedRunEqualsAnUninterruptedOne) {
  const test::TemporaryFolder folder;
  const auto trained = [&](const char* name, std::initializer_list<std::int64_t> stops) {
    RunConfig c = mixed_run(0.2, 1);
    c.run.dir = (folder.path / name).string();
    c.optim.schedule = LrSchedule::constant;
    c.train.micro_batch = 16;
    for (const std::int64_t steps : stops) {
      c.train.steps = steps;
      run_thread_world(1, [&](World& world) { train(world, c); });
    }
    return test::tensors_of(folder.path / name);
  };
  const Tensors once = trained("once", {8}), twice = trained("twice", {3, 8});
  for (const auto& [name, values] : once) EXPECT_TRUE(test::same_bits(values, twice.at(name))) << name;
}

// An evaluation that mixed its samples would differ between the two runs, whose weights stay the initial ones.
TEST(Mix, EvaluationsMixNothing) {
  const auto evaluated = [](RunConfig c) {
    const test::TemporaryFolder folder;
    c.run.dir = (folder.path / "run").string();
    c.data.valid = {"synthetic:images:rows=40,shape=9x8x3,classes=4,seed=2"};
    c.model.layers = {"globalpool", "linear outputs"};
    c.optim.lr = 0;
    c.train.steps = 1;
    run_thread_world(1, [&](World& world) { train(world, c); });
    std::ifstream in(folder.path / "run" / "validation.jsonl");
    std::string line;
    std::getline(in, line);
    return double(nlohmann::json::parse(line).at("loss"));
  };
  EXPECT_EQ(evaluated(mixed_run(1, 1)), evaluated(small_run(true)));
}

TEST(Mix, RefusesWhatCannotBeMixed) {
  const auto refusal = [](RunConfig c) {
    return test::message_of([&] { test::run(c, 1, c.train.micro_batch); }, Exit::config);
  };
  RunConfig c = mixed_run(0, 1);
  c.data.augment = false;
  c.data.train = {"synthetic:images:rows=50,shape=7,classes=3"};
  c.model.layers = {"linear outputs"};
  EXPECT_EQ(refusal(c), "train.cutmix: samples of 7 have no box to exchange, which needs images. set train.cutmix = 0");
  c.train.cutmix = 0;
  c.train.mixup = 0.2;
  c.train.micro_batch = 1;
  EXPECT_EQ(refusal(c), "train.mixup: a micro-batch of one sample holds none to mix it with. raise train.micro_batch");
  c = mixed_run(0.2, 0);
  c.model.layers = {"conv outputs 3x3 pad=same"};
  c.data.train = {"synthetic:images:rows=50,shape=9x8x3,classes=4,labels=pixel"};
  EXPECT_EQ(refusal(c), "train.mixup: label maps of 9x8 cannot be mixed. set train.mixup = 0");
  c.data.train = {"synthetic:images:rows=50,shape=9x8x3,classes=2"};
  c.model.loss = Loss::binary_cross_entropy;
  EXPECT_EQ(refusal(c), "train.mixup: only classes can be mixed, with model.loss = cross_entropy. set train.mixup = 0");
}

}  // namespace mix_test
}  // namespace millrace
