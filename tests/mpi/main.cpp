// Ranks run the same tests in the same order; a failure on any rank fails all.
#include <gtest/gtest.h>

#include "millrace/comm/world.hpp"
#include "millrace/io/hdf5.hpp"
#include "mpi/world.hpp"

namespace millrace {
namespace {

World* world = nullptr;

// Synchronizes the ranks after every test, and tells each rank about failures of the others.
class RankSynchronizer : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& info) override {
    std::int64_t failed = info.result()->Failed();
    world->all_reduce(std::span<std::int64_t>(&failed, 1), World::Reduce::max);
    failed_ = failed_ || failed;
  }

 public:
  static inline bool failed_ = false;
};

}  // namespace

World& test_world() { return *world; }

}  // namespace millrace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  millrace::io::initialize_hdf5();
  const auto owner = millrace::mpi_world(&argc, &argv);
  millrace::world = owner.get();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (owner->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new millrace::RankSynchronizer);
  const int result = RUN_ALL_TESTS();
  return result != 0 || millrace::RankSynchronizer::failed_;
}
