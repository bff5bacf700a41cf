// A run that needs too much memory is refused before its first step. The message names the largest micro-batch that
// fits, and that one really fits.
#include "millrace/train/session/memory_fit.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "train/runs.hpp"

namespace millrace {
namespace memory_fit_test {

TEST(MemoryFit, FindsTheMostRowsInFewEvaluations) {
  for (const std::size_t base : {0, 10, 5000})
    for (const std::size_t per_row : {1, 7, 100})
      for (const std::int64_t too_many : {2, 3, 50, 4096}) {
        const auto bytes = [&](std::int64_t rows) {  // not quite linear, because memory is allocated in pieces
          return base + per_row * std::size_t(rows) + std::size_t(rows) / 16 * 3;
        };
        for (std::int64_t most : {std::int64_t(0), std::int64_t(1), too_many / 3, too_many - 1}) {
          most = std::min(most, too_many - 1);
          const std::size_t limit = most == 0 ? bytes(1) - 1 : bytes(most + 1) - 1;
          int asked = 0;
          EXPECT_EQ(max_rows_within(too_many, limit, [&](std::int64_t rows) { return ++asked, bytes(rows); }), most)
              << base << " + " << per_row << " a row, below " << too_many;
          EXPECT_LE(asked, 8) << base << " + " << per_row << " a row, below " << too_many << ": " << most;
        }
      }
}

std::string refusal(const RunConfig& c, int ranks) {
  std::string text;
  try {
    run_thread_world(ranks, [&](World& world) { train(world, c); });
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    text = e.what();
  }
  return text;
}

TEST(MemoryFit, TheNamedMicroBatchFitsAndOneSampleMoreDoesNot) {
  for (const int ranks : {1, 2}) {
    const test::TemporaryFolder folder;
    RunConfig c = test::small_run(true, "2000");
    c.data.prefetch = 4;  // auto would plan a ring of 64 MiB
    c.run.dir = (folder.path / "run").string();
    c.data.valid = {"synthetic:images:rows=300,shape=9x8x3,classes=4"};
    c.train.global_batch = 1024;
    c.train.steps = 1;
    c.run.memory = 3 << 20;
    const std::string text = refusal(c, ranks);
    int asked = 0, fitting = 0;
    ASSERT_EQ(std::sscanf(text.c_str(), "train.micro_batch: %d samples at once need ", &asked), 1) << text;
    const std::string before = " of them for activations), but cpu has only 3.00 MiB per rank. set it to ";
    const auto at = text.find(before);
    ASSERT_NE(at, text.npos) << text;
    ASSERT_EQ(std::sscanf(text.c_str() + at + before.size(), "%d, the largest", &fitting), 1) << text;
    EXPECT_EQ(asked, 1024 / ranks);
    EXPECT_FALSE(std::filesystem::exists(folder.path / "run" / "metrics.jsonl")) << "before step 1";
    c.train.micro_batch = fitting;
    EXPECT_EQ(refusal(c, ranks), "");
    c.train.micro_batch += 1;
    EXPECT_NE(refusal(c, ranks), "");
  }
}

// A backend whose linear layers need more workspace. It records for which numbers of rows operations were made with and
// without kernel timing.
class Greedy : public Backend {
 public:
  Greedy(std::unique_ptr<Backend> real, std::size_t more) : real_(std::move(real)), more_(more) {}
  std::set<std::int64_t> rows[2];  // [timed]
  Device& device() override { return real_->device(); }
  std::unique_ptr<Op> make(const Spec& spec) override {
    const auto* linear = std::get_if<LinearSpec>(&spec);
    if (linear) rows[timing_].insert(linear->src[0]);
    return std::make_unique<More>(real_->make(spec), linear ? more_ : 0);
  }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return real_->make_optimizer(spec);
  }
  void convert(void* to, DType t, const void* from, DType f, std::int64_t count) override {
    real_->convert(to, t, from, f, count);
  }
  std::string why_not_fused(const Spec& spec) override { return real_->why_not_fused(spec); }
  int max_fusion_level() const override { return real_->max_fusion_level(); }
  void set_kernel_timing(bool on) override { timing_ = on; }
  std::string precision_note(DType t) const override { return real_->precision_note(t); }

 private:
  struct More : Op {
    More(std::unique_ptr<Op> op, std::size_t more) : real(std::move(op)), more(more) {}
    MemoryRequirements memory_requirements() const override {
      MemoryRequirements out = real->memory_requirements();
      out.workspace += more;
      return out;
    }
    void forward(const OpArgs& args) override { real->forward(args); }
    void backward(const OpArgs& args) override { real->backward(args); }
    std::string implementation() const override { return real->implementation(); }
    std::unique_ptr<Op> real;
    std::size_t more;
  };
  std::unique_ptr<Backend> real_;
  std::size_t more_;
  bool timing_ = true;
};

TEST(MemoryFit, IsTheSameOnRanksThatNeedDifferentAmountsOfMemory) {
  RunConfig c = test::small_run(false);
  std::size_t needed = 0;
  {
    const auto world = solo_world();
    Session s(*world, c, Session::Use::train);
    needed = s.plan(s.batching.micro_batch / 2).needs.total();
  }
  c.run.memory = needed + (1 << 20);  // enough for all but the greedy rank
  for (const std::size_t more : {std::size_t(0), std::size_t(64) << 20}) {
    std::vector<std::string> problems(2);
    run_thread_world(2, [&](World& world) {
      Session s(world, c, Session::Use::train);
      if (world.rank() == 1) s.compute.backend = std::make_unique<Greedy>(std::move(s.compute.backend), more);
      problems[std::size_t(world.rank())] = check_memory_fit(s).problem;
    });
    EXPECT_EQ(problems[0].empty(), more == 0) << problems[0];
    EXPECT_EQ(problems[0], problems[1]);
  }
}

TEST(MemoryFit, TimesNoKernelsForTrialMicroBatches) {
  RunConfig c = test::small_run(false, "5000");
  c.data.prefetch = 4;
  c.train.global_batch = 4096;
  c.run.memory = 3 << 20;
  const auto world = solo_world();
  Session s(*world, c, Session::Use::train);
  auto greedy = std::make_unique<Greedy>(std::move(s.compute.backend), 0);
  const Greedy& made = *greedy;
  s.compute.backend = std::move(greedy);
  EXPECT_NE(check_memory_fit(s).problem, "");
  EXPECT_EQ(made.rows[true], (std::set<std::int64_t>{4096, 5000 - 4096}));
  EXPECT_GE(made.rows[false].size(), 3u);
  s.plan(7);
  EXPECT_TRUE(made.rows[true].count(7)) << "afterwards kernels are timed again";
}

TEST(MemoryFit, TheMessageSaysWhenASingleSampleDoesNotFit) {
  const test::TemporaryFolder folder;
  RunConfig c = test::small_run(false);
  c.run.dir = (folder.path / "run").string();
  c.model.name = ModelName::mlp;
  c.model.hidden = {4000, 4000};
  c.run.memory = 1 << 20;
  EXPECT_NE(refusal(c, 1).find("even a single sample does not fit"), std::string::npos);
}

TEST(MemoryFit, ThePlanSaysWhetherItFits) {
  RunConfig c = test::small_run(false, "5000");
  c.train.global_batch = 4096;
  const auto world = solo_world();
  EXPECT_EQ(describe_plan(*world, c).find("does not fit"), std::string::npos);
  c.run.memory = 3 << 20;
  EXPECT_NE(describe_plan(*world, c).find("does not fit: train.micro_batch: 4096 samples"), std::string::npos);
}

}  // namespace memory_fit_test
}  // namespace millrace
