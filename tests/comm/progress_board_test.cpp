#include "millrace/comm/progress_board.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace progress_board_test {

TEST(ProgressBoard, NamesTheRanksThatAreBehind) {
  run_thread_world(4, [](World& world) {
    const auto board = make_progress_board(world);
    EXPECT_TRUE(board->late(0).empty());
    world.barrier();
    board->post(world.rank() == 2 ? 6 : 7);
    world.barrier();
    EXPECT_TRUE(board->late(6).empty());
    EXPECT_EQ(board->late(7), std::vector<int>{2});
    EXPECT_EQ(board->late(8).size(), 4u);
    world.barrier();
  });
}

}  // namespace progress_board_test
}  // namespace millrace
