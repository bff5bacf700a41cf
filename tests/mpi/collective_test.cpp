#include "millrace/comm/collective.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "millrace/base/error.hpp"
#include "millrace/comm/node_memory.hpp"
#include "millrace/comm/position_exchange.hpp"
#include "millrace/comm/progress_board.hpp"
#include "millrace/comm/staged.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "mpi/world.hpp"
#include "support/collective_checks.hpp"
#include "support/expect_error.hpp"
#include "support/host/device.hpp"

namespace millrace {
namespace collective_test {

CollectiveOptions with(CollectiveOptions::Progress progress, bool private_memory = false) {
  CollectiveOptions o;
  o.progress = progress;
  o.private_memory = private_memory;
  o.timeout_seconds = 15;
  o.chunk_bytes = 64 << 10;
  return o;
}

TEST(Collective, AllReduceEqualsTheSumInRankOrderWithEveryProgress) {
  for (const auto progress : {CollectiveOptions::Progress::thread, CollectiveOptions::Progress::inline_}) {
    const auto collective = make_host_collective(test_world(), with(progress));
    check_all(test_world(), *collective);
    check_pipeline(test_world(), *collective);
  }
}

TEST(Collective, RegionsBeginAtAPage) {
  for (const bool private_memory : {false, true}) {
    const auto collective =
        make_host_collective(test_world(), with(CollectiveOptions::Progress::inline_, private_memory));
    for (const std::size_t bytes : {100u, 100'000u}) {
      const SharedRegion region = collective->allocate(bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.data) % 4096, 0u) << bytes << " bytes";
    }
  }
}

TEST(Collective, AllReduceInPrivateMemoryEqualsTheSumInRankOrder) {
  const auto collective = make_host_collective(test_world(), with(CollectiveOptions::Progress::inline_, true));
  check_all(test_world(), *collective);
  check_pipeline(test_world(), *collective);
}

TEST(Collective, AllReduceOfManyMessagesEqualsTheSumInRankOrder) {
  CollectiveOptions options = with(CollectiveOptions::Progress::thread, true);
  options.chunk_bytes = 8 << 20;
  const auto collective = make_host_collective(test_world(), options);
  for (const std::size_t count : {70001u, 1u << 20}) {
    check_sum<float>(test_world(), *collective, DType::f32, 3, count);
    check_sum<bf16>(test_world(), *collective, DType::bf16, 3, count);
  }
}

TEST(Collective, ReduceScatterThenAllGatherEqualsTheSum) {
  for (const bool private_memory : {false, true}) {
    const auto collective =
        make_host_collective(test_world(), with(CollectiveOptions::Progress::thread, private_memory));
    check_scatter_gather(test_world(), *collective);
    check_scatter_like_sum<float>(test_world(), *collective, DType::f32);
    check_scatter_like_sum<bf16>(test_world(), *collective, DType::bf16);
    check_waits(test_world(), *collective);
    check_blocking_gathers(test_world(), *collective);
    check_scalars(test_world(), *collective);
  }
}

TEST(Collective, AllReduceOfDevicesThroughHostMemoryEqualsTheSumInRankOrder) {
  for (const bool private_memory : {false, true}) {
    test::HostDevice device(false);
    const auto collective =
        make_staged_collective(test_world(), device, with(CollectiveOptions::Progress::automatic, private_memory));
    check_all(test_world(), *collective);
    check_pipeline(test_world(), *collective);
    check_scatter_gather(test_world(), *collective);
    check_scatter_like_sum<float>(test_world(), *collective, DType::f32);
    check_scatter_like_sum<bf16>(test_world(), *collective, DType::bf16);
  }
}

TEST(Collective, TheBoardShowsTheRanksThatAreBehind) {
  const auto board = make_progress_board(test_world());
  board->post(test_world().rank() == 0 ? 1 : 2);
  test_world().barrier();
  const auto behind = board->late(2);
  test_world().barrier();
  if (test_world().node() == 0) {
    EXPECT_EQ(behind, std::vector<int>{0});
  } else {
    EXPECT_TRUE(behind.empty());
  }
}

// The main threads of the ranks are blocked in MPI calls here, so other threads must answer for them.
TEST(Collective, RanksOfOtherHostsThatAreBehindAreNamed) {
  World& world = test_world();
  for (const char* shm_bytes :
       {"", "1000"}) {  // with space for the boards in /dev/shm, and without: then each rank has its own
    if (*shm_bytes) ::setenv("MILLRACE_TEST_SHM_BYTES", shm_bytes, 1);
    const auto board = make_progress_board(world);
    ::unsetenv("MILLRACE_TEST_SHM_BYTES");
    const int late = world.size() - 1;
    board->post(world.rank() == late ? 6 : 7);
    world.barrier();
    for (const std::uint64_t number : {7, 6}) {  // all ranks ask at the same time
      const auto status = board->query_ranks(number, 10);
      EXPECT_EQ(status.late, number == 7 ? std::vector<int>{late} : std::vector<int>{});
      EXPECT_TRUE(status.unresponsive.empty());
      const std::string words = board->describe(status);
      if (number == 7)
        EXPECT_EQ(words, fmt::format("late: rank {} on {}", late, world.host()));
      else
        EXPECT_NE(words.find("no rank is known to be late"), words.npos);
    }
    world.barrier();
    if (world.rank() == 0) {
      const auto status = board->query_ranks(8, 10);
      EXPECT_EQ(int(status.late.size()), world.size());
    }
    world.barrier();
  }
}

// The last rank is stopped for some seconds after it has posted its number.
TEST(Collective, AStoppedRankIsNamedWhateverItHasPosted) {
  World& world = test_world();
  if (world.size() == 1) GTEST_SKIP() << "needs another rank";
  const int last = world.size() - 1;
  const auto nodes = world.gather(std::to_string(world.node()));
  const bool alone = std::count(nodes.begin(), nodes.end(), nodes.back()) == 1;  // then nobody answers for its host
  watchdog::start(600);
  {
    const PositionExchange exchange(world);
    const auto board = make_progress_board(world);
    board->post(7);
    world.barrier();
    if (world.rank() == last) {
      ASSERT_EQ(std::system(fmt::format("(sleep 5; kill -CONT {}) &", ::getpid()).c_str()), 0);
      ::kill(::getpid(), SIGSTOP);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(3200));
      const auto status = board->query_ranks(7, 1);
      EXPECT_EQ(status.stopped, alone ? std::vector<int>{} : std::vector<int>{last});
      EXPECT_EQ(status.unresponsive, alone ? std::vector<int>{last} : std::vector<int>{});
      EXPECT_TRUE(status.late.empty());
      EXPECT_EQ(board->describe(status),
                fmt::format("{}: rank {} on {}", alone ? "no answer" : "stopped or dead", last, world.host()));
      EXPECT_EQ(board->is_first_host(status), world.node() == 0);
      EXPECT_EQ(board->is_first_host({{0}, {1}, {}}), world.size() < 3 || std::to_string(world.node()) == nodes[2]);
    }
    world.barrier();
  }
  watchdog::stop();
}

TEST(Collective, AHostThatDoesNotAnswerIsNamed) {
  World& world = test_world();
  auto board = make_progress_board(world);
  board->post(1);
  world.barrier();
  if (world.node() == world.node_count() - 1) board.reset();  // ends its thread
  world.barrier();
  if (board) {
    const auto status = board->query_ranks(1, 0.5);
    EXPECT_TRUE(status.late.empty());
    EXPECT_EQ(status.unresponsive.empty(), world.node_count() == 1);
    if (world.node_count() > 1) {
      EXPECT_EQ(status.unresponsive.back(), world.size() - 1);
      EXPECT_EQ(board->describe(status).find("no answer: rank "), 0u) << board->describe(status);
    }
  }
  world.barrier();
}

TEST(Collective, FallsBackToPrivateMemoryWhereSharedMemoryIsTooSmall) {
  ::setenv("MILLRACE_TEST_SHM_BYTES", "100000", 1);
  const auto collective = make_host_collective(test_world(), with(CollectiveOptions::Progress::inline_));
  check_sum<float>(test_world(), *collective, DType::f32, 3, 50000);
  ::unsetenv("MILLRACE_TEST_SHM_BYTES");
  if (test_world().size() > 1) {
    EXPECT_NE(collective->describe().find("private memory"), std::string::npos);
  }
}

TEST(WorldOverMpi, ReducesGathersAndBroadcasts) {
  World& world = test_world();
  std::vector<std::int64_t> v{world.rank(), -world.rank()};
  world.all_reduce(std::span<std::int64_t>(v), World::Reduce::max);
  EXPECT_EQ(v, (std::vector<std::int64_t>{world.size() - 1, 0}));
  const auto names = world.gather(std::string(std::size_t(world.rank()), 'x'));
  const auto at_root = world.gather_to_root(std::string(std::size_t(world.rank()), 'x'));
  EXPECT_EQ(at_root, world.rank() == 0 ? names : std::vector<std::string>{});
  for (std::size_t r = 0; r < names.size(); ++r) EXPECT_EQ(names[r].size(), r);
  EXPECT_EQ(world.broadcast_string(fmt::format("from {}", world.rank()), world.size() - 1),
            fmt::format("from {}", world.size() - 1));
  EXPECT_GE(world.node_count(), 1);
  EXPECT_LT(world.node(), world.node_count());
  EXPECT_LT(world.local_rank(), world.local_size());
  EXPECT_EQ(world.duplicate()->rank(), world.rank());
}

TEST(WorldOverMpi, RanksOfAHostShareNodeMemoryOrHaveCopiesIfShmIsFull) {
  World& world = test_world();
  const std::string bytes(5'000'000, 'b');
  for (const char* shm_bytes : {"", "100000"}) {
    if (*shm_bytes) ::setenv("MILLRACE_TEST_SHM_BYTES", shm_bytes, 1);
    const NodeMemory copy = node_copy(world, world.rank() == 0 ? bytes : "");
    EXPECT_EQ(std::string(copy.data.get(), copy.bytes), bytes);
    const NodeMemory board = node_memory(world, 2'000'000);
    EXPECT_EQ(board.shared, !*shm_bytes || world.local_size() == 1);
    board.data.get()[world.local_rank()] = 1;
    world.barrier();
    int written = 0;
    for (int r = 0; r < world.local_size(); ++r) written += board.data.get()[r];
    EXPECT_EQ(written, board.shared ? world.local_size() : 1);
    world.barrier();
    ::unsetenv("MILLRACE_TEST_SHM_BYTES");
  }
}

TEST(WorldOverMpi, AgreeThrowsTheLowestRanksErrorEverywhere) {
  World& world = test_world();
  world.agree(Exit::data, "");
  test::expect_error(Exit::data, "broken", [&] {
    world.agree(Exit(world.rank() == world.size() - 1 ? int(Exit::data) : int(Exit::internal)),
                world.rank() == world.size() - 1 ? "broken" : "");
  });
}

}  // namespace collective_test
}  // namespace millrace
