#include "millrace/comm/clock_offset.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "millrace/comm/world.hpp"

namespace millrace {
namespace clock_offset_test {

TEST(Clock, OffsetIsCorrectWithinTheReportedError) {
  run_thread_world(3, [](World& world) {
    const double ahead = 3.5 * world.rank();
    const auto clock = [&] {
      return ahead + std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    const ClockOffset offset = clock_offset(world, clock);
    EXPECT_LE(std::abs(offset.seconds - ahead), offset.error + 1e-9);
    EXPECT_LT(offset.error, 1.0);  // barriers are slow on a busy machine
  });
}

TEST(Clock, RanksOfOneHostHaveNoOffset) {
  run_thread_world(2, [](World& world) {
    const ClockOffset offset = clock_offset(world);
    EXPECT_EQ(offset.seconds, 0);
    EXPECT_EQ(offset.error, 0);
  });
}

}  // namespace clock_offset_test
}  // namespace millrace
