// With optim.zero = auto, Session decides whether the optimizer is sharded.
#include <gtest/gtest.h>

#include <atomic>

#include "millrace/config/keys.hpp"
#include "millrace/train/session/session.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace automatic_zero_test {

// Whether a run with optim.zero = auto, or as given, shards the optimizer.
bool shards(const char* optimizer, std::int64_t hidden, int ranks, const char* zero = "auto") {
  RunConfig c = test::small_run(true);
  c.model.name = ModelName::mlp;
  c.model.hidden = {hidden, hidden};
  find_key("optim.name")->set(c, {optimizer});
  find_key("optim.zero")->set(c, {zero});
  std::atomic<bool> sharded = false;
  run_thread_world(ranks, [&](World& world) {
    const Session s(world, c, Session::Use::train);
    sharded = s.spec.buckets.sharded();
  });
  return sharded;
}

TEST(AutomaticZero, ShardsManyParametersOfAdamAndMuon) {
  constexpr std::int64_t many = 1450, few = 1300;  // 8.6 and 7.1 MiB
  EXPECT_TRUE(shards("adamw", many, 2));
  EXPECT_TRUE(shards("muon", many, 3));
  EXPECT_FALSE(shards("adamw", few, 2));
  EXPECT_FALSE(shards("sgd", many, 2));
  EXPECT_FALSE(shards("adamw", many, 1));
  EXPECT_FALSE(shards("adamw", many, 2, "0"));
  EXPECT_TRUE(shards("sgd", few, 2, "1"));
}

}  // namespace automatic_zero_test
}  // namespace millrace
