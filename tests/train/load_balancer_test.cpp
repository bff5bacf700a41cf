// The load balancer splits whole micro-batches by the speed of the ranks, and all ranks use the same split.
#include "millrace/train/distributed/load_balancer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>

#include "millrace/base/error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace load_balancer_test {

TEST(LoadBalancer, TheSplitMinimizesTheTimeOfTheSlowestRank) {
  EXPECT_EQ(balanced_split(std::vector{1.0, 1.0}, 16, 16), (MicrobatchSplit{8, 8}));
  EXPECT_EQ(balanced_split(std::vector{1.0, 3.0}, 16, 16), (MicrobatchSplit{12, 4}));
  EXPECT_EQ(balanced_split(std::vector{1.0, 1000.0}, 16, 16), (MicrobatchSplit{15, 1}))
      << "each rank gets at least one";
  EXPECT_EQ(balanced_split(std::vector{1.0, 1000.0}, 16, 10), (MicrobatchSplit{10, 6}));
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> seconds(1 + random() % 4);
    for (double& s : seconds) s = 0.5 + double(random() % 1000) / 100;
    const std::int64_t all = std::int64_t(seconds.size() + random() % 6),
                       most = std::max<std::int64_t>(
                           2 + random() % 4, (all + std::int64_t(seconds.size()) - 1) / std::int64_t(seconds.size()));
    const MicrobatchSplit fair = balanced_split(seconds, all, most);
    const auto slowest = [&](const MicrobatchSplit& shares) {
      double last = 0;
      for (std::size_t r = 0; r < shares.size(); ++r)
        last = std::max(last, shares[r] > most ? 1e9 : seconds[r] * double(shares[r]));
      return last;
    };
    // Compare with all possible splits.
    double best = 1e9;
    MicrobatchSplit trial(seconds.size(), 1);
    const auto try_all = [&](const auto& self, std::size_t rank, std::int64_t left) -> void {
      if (rank + 1 == trial.size()) {
        trial[rank] = left;
        best = std::min(best, slowest(trial));
        return;
      }
      for (trial[rank] = 1; trial[rank] <= left - std::int64_t(trial.size() - rank - 1); ++trial[rank])
        self(self, rank + 1, left - trial[rank]);
    };
    try_all(try_all, 0, all);
    std::int64_t sum = 0;
    for (const std::int64_t n : fair) sum += n;
    EXPECT_EQ(sum, all);
    EXPECT_DOUBLE_EQ(slowest(fair), best) << all << " micro-batches on " << seconds.size() << " ranks";
  }
}

StepMetrics step_of(std::int64_t number, double forward, double backward) {
  StepMetrics m;
  m.step = number;
  m.seconds = 0.3;
  m.phase_seconds[std::size_t(Phase::forward)] = forward;
  m.phase_seconds[std::size_t(Phase::backward)] = backward;
  return m;
}

// The loaders of the two ranks are ahead by different numbers of steps.
TEST(LoadBalancer, AllRanksChangeTheSplitAtAStepThatNoLoaderHasFetched) {
  constexpr std::int64_t all = 12, ahead[] = {3, 9};
  std::array<std::vector<std::int64_t>, 2> counts;
  run_thread_world(2, [&](World& world) {
    const std::size_t rank = std::size_t(world.rank());
    LoadBalancer balance(world, "auto", all);
    balance.plan_from(0);
    std::int64_t fetched = 0;
    std::vector<std::int64_t> planned;
    for (std::int64_t step = 0; step < 150; ++step) {
      for (; fetched < step + ahead[rank]; ++fetched) planned.push_back(balance.plan(fetched).count(all));
      const std::int64_t mine = balance.part(step).count(all);
      EXPECT_EQ(mine, planned[std::size_t(step)]) << "the split changed after the loader had fetched the step";
      EXPECT_EQ(balance.max_micro_batches(step, all) + balance.min_micro_batches(step, all), all);
      counts[rank].push_back(mine);
      StepTiming pace;
      pace.full = step % 7 != 6;
      pace.micro_batches = int(mine);
      // Steps that are not full and the first step are not measured, so their time must have no effect.
      const double each = !pace.full || step == 0 ? 9 : step < 30 ? (rank ? 0.02 : 0.01) : 0.01;
      balance.after_step(step_of(step + 1, each * double(mine) / 3, each * double(mine) * 2 / 3), pace);
    }
  });
  for (std::size_t step = 0; step < counts[0].size(); ++step)
    EXPECT_EQ(counts[0][step] + counts[1][step], all) << "step " << step;
  EXPECT_EQ(counts[0][0], 6);
  EXPECT_EQ(counts[0][29], 8) << "rank 1 takes twice as long";
  EXPECT_EQ(counts[0].back(), 6) << "both ranks are equally fast again";
}

TEST(LoadBalancer, EvenEqualsTheEvenSplitOfTheSampler) {
  run_thread_world(3, [&](World& world) {
    const LoadBalancer balance(world, "even", 13);
    for (const std::int64_t all : {13, 5, 2, 1}) {
      EXPECT_EQ(balance.part(7).first(all), MicrobatchRange::even(world.rank(), 3).first(all));
      EXPECT_EQ(balance.part(7).count(all), MicrobatchRange::even(world.rank(), 3).count(all));
    }
  });
}

TEST(LoadBalancer, AFileOfSharesIsFollowedLineByLineOrRefused) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path / "shares.jsonl").string();
  const auto with = [&](const std::string& text) {
    std::ofstream(file) << text;
    std::string problem;
    try {
      run_thread_world(2, [&](World& world) {
        LoadBalancer balance(world, file, 8);
        EXPECT_EQ(balance.part(0).count(8), 4);
        EXPECT_EQ(balance.part(9).count(8), world.rank() ? 2 : 6);
        EXPECT_EQ(balance.part(8).count(8), 4);
        EXPECT_EQ(balance.part(9).count(4), world.rank() ? 1 : 3) << "in a short step";
        EXPECT_EQ(balance.split_number(8), 0u);
        EXPECT_EQ(balance.split_number(9), 1u);
        EXPECT_EQ(balance.str(100), "6 2");
      });
    } catch (const Error& e) {
      problem = e.what();
    }
    return problem;
  };
  EXPECT_EQ(with("{\"step\":1,\"micro_batches\":[4,4]}\n{\"step\":10,\"micro_batches\":[6,2]}\n"), "");
  for (const char* bad :
       {"", "words\n", "{\"step\":1,\"micro_batches\":[4,5]}\n", "{\"step\":1,\"micro_batches\":[4,2,2]}\n",
        "{\"step\":2,\"micro_batches\":[4,4]}\n", "{\"step\":1,\"micro_batches\":[9,-1]}\n",
        "{\"step\":1,\"micro_batches\":[4,4]}\n{\"step\":0,\"micro_batches\":[6,2]}\n"})
    EXPECT_NE(with(bad).find("train.balance: "), std::string::npos) << bad;
}

}  // namespace load_balancer_test
}  // namespace millrace
