#include "cpu/common/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"
#include "support/thread_count.hpp"

namespace millrace {
namespace threads_test {

using cpu::parallel_ranges, cpu::run_parts, test::ThreadCount;

template <class Body>
void run(int parts, int threads, const Body& body) {
  run_parts(
      parts, threads, [](const void* b, int part) { (*static_cast<const Body*>(b))(part); }, &body);
}

TEST(Threads, EachPartRunsOnceForAnyNumbersOfPartsAndThreads) {
  for (const int threads : {1, 2, 3, 5})
    for (const int parts : {1, 2, 3, 7, 64}) {
      std::vector<int> plain(std::size_t(parts), 0);
      for (int repeat = 1; repeat <= 50; ++repeat) {
        run(parts, threads, [&](int part) { ++plain[std::size_t(part)]; });
        ASSERT_EQ(plain, std::vector<int>(std::size_t(parts), repeat)) << parts << " parts, " << threads << " threads";
      }
    }
}

TEST(Threads, PartsAtTheSameTimeHaveDifferentNumbersBelowThatOfThreads) {
  constexpr int threads = 3;
  std::atomic<int> holder[threads] = {};
  std::atomic<bool> wrong{false};
  run(200, threads, [&](int) {
    const int number = cpu::thread_number();
    if (number < 0 || number >= threads || holder[number].exchange(1) != 0) wrong = true;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    holder[number] = 0;
  });
  EXPECT_FALSE(wrong);
  EXPECT_EQ(cpu::thread_number(), 0);
}

// A thread in the middle of a part delays a loop only by this part.
TEST(Threads, OthersTakeOverThePartsOfALateThread) {
  const long before = cpu::thread_stats().taken_over;
  std::atomic<int> after_delay{0};
  std::atomic<bool> delayed{true};
  run(8, 2, [&](int part) {
    if (part == 4) {  // the first of member 1
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      delayed = false;
    }
    if (part > 4 && !delayed) ++after_delay;
  });
  EXPECT_EQ(after_delay, 0);
  EXPECT_GE(cpu::thread_stats().taken_over - before, 3);
}

TEST(Threads, LoopsWithinPartsRunOnTheirThread) {
  std::atomic<int> sum{0}, elsewhere{0};
  run(4, 2, [&](int) {
    const auto me = std::this_thread::get_id();
    const int number = cpu::thread_number();
    run(10, 2, [&](int part) {
      sum += part;
      if (std::this_thread::get_id() != me || cpu::thread_number() != number) ++elsewhere;
    });
  });
  EXPECT_EQ(sum, 4 * 45);
  EXPECT_EQ(elsewhere, 0);
}

TEST(Threads, ThreadsHaveTeamsOfTheirOwn) {
  std::atomic<long> sum{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      cpu::set_thread_count(2);
      for (int i = 0; i < 200; ++i)
        parallel_ranges(1000, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(sum, 4 * 200 * 1000);
}

TEST(Threads, LoopsFollowPausesInWhichThreadsSleep) {
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));
    std::atomic<int> count{0};
    run(6, 3, [&](int) { ++count; });
    ASSERT_EQ(count, 6);
  }
}

// Many loops of changing size, with pauses in which threads fall asleep. For the thread sanitizer above all.
TEST(Threads, ManyLoopsComputeEachPartOnce) {
  std::vector<long> counts(9, 0);
  long expected = 0;
  for (int i = 0; i < 50000; ++i) {
    const int parts = 1 + i % 9;
    run(parts, 3, [&](int part) { ++counts[std::size_t(part)]; });
    if (i % 5000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    expected += parts;
  }
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0L), expected);
}

TEST(Threads, RangesCoverTheLoopAndBeginAtGrains) {
  const ThreadCount kept(3);
  for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4097}) {
    std::vector<int> seen(std::size_t(count), 0);
    std::atomic<bool> wrong{false};
    parallel_ranges(count, 16, [&](std::int64_t begin, std::int64_t end) {
      if (begin % 16 != 0 || begin >= end) wrong = true;
      for (std::int64_t i = begin; i < end; ++i) ++seen[std::size_t(i)];
    });
    EXPECT_FALSE(wrong);
    EXPECT_EQ(seen, std::vector<int>(std::size_t(count), 1));
  }
}

// Within parts, and outside of loops.
TEST(Threads, AreAloneForAScope) {
  const ThreadCount kept(3);
  std::atomic<int> wrong{0};
  const auto check = [&] {
    const int member = cpu::thread_number();
    {
      const cpu::Alone alone;
      int parts = 0;
      run(4, cpu::thread_count(), [&](int) { parts += cpu::thread_number() == 0; });
      if (parts != 4 || cpu::thread_count() != 1) ++wrong;
    }
    if (cpu::thread_number() != member || cpu::thread_count() != 3) ++wrong;
  };
  check();
  for (int i = 0; i < 100; ++i) run(9, 3, [&](int) { check(); });
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, OneDnnComputesOnThem) {
  const ThreadCount kept(2);
  constexpr std::int64_t n = 256;
  using namespace cpu::onednn;
  const desc square = plain({n, n}, DType::f32);
  const auto pd = matmul(square, square, desc(), square);
  Call call(pd, dnnl::matmul(pd), {{DNNL_ARG_SRC, square}, {DNNL_ARG_WEIGHTS, square}, {DNNL_ARG_DST, square}});
  std::vector<float> a(n * n, 1.0f), b(n * n, 2.0f), c(n * n, 0.0f), scratch(call.scratch_bytes() / sizeof(float) + 16);
  call.bind(DNNL_ARG_SRC, a.data());
  call.bind(DNNL_ARG_WEIGHTS, b.data());
  call.bind(DNNL_ARG_DST, c.data());
  call.bind_scratch(reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64));
  const long before = cpu::thread_stats().loops;
  call.run();
  EXPECT_GT(cpu::thread_stats().loops, before);
  for (const float value : c) ASSERT_EQ(value, 512.0f);
}

}  // namespace threads_test
}  // namespace millrace
