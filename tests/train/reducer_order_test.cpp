#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "millrace/compute/execution_context.hpp"
#include "millrace/train/distributed/reducer.hpp"

namespace millrace {
namespace reducer_order_test {

constexpr std::int64_t unit = ParameterLayout::padding, count = 37 * unit;

float value(int rank, int step, std::int64_t i) { return float(std::sin(double(i * 7 + rank * 13 + step))); }

// Runs two steps in which blocks are announced in the given order. Returns the gradient of the second step. tags: the
// tags of the all-reduces of both steps, in the order in which they ran.
std::vector<float> reduce(int ranks, CollectiveOptions::Progress progress, bool overlap, DType grad_dtype,
                          const std::vector<std::int64_t>& order, std::vector<int>* tags = nullptr) {
  std::vector<float> out(count);
  run_thread_world(ranks, [&](World& world) {
    ExecutionOptions options;
    options.collective.progress = progress;
    const ExecutionContext compute = make_cpu_context(world, options);
    const SharedRegion gradient = compute.collective->allocate(count * 4),
                       packed = compute.collective->allocate(count * 4);
    Reducer reducer(*compute.collective, *compute.backend, {count, {5 * unit}, grad_dtype, overlap, ranks == 1},
                    gradient, packed);
    auto* data = static_cast<float*>(gradient.data);
    std::vector<CommSpan> spans;
    for (int step = 0; step < 2; ++step) {
      for (const std::int64_t block : order) {
        for (std::int64_t i = block * unit; i < (block + 1) * unit; ++i) data[i] = value(world.rank(), step, i);
        reducer.on_gradient_ready(block * unit, (block + 1) * unit);
      }
      reducer.finish();
      compute.collective->take_spans(spans);
      if (world.rank() == 0 && tags)
        for (const CommSpan& s : spans) tags->push_back(s.tag);
      world.barrier();
    }
    if (world.rank() == ranks - 1) std::copy(data, data + count, out.begin());
    world.barrier();
  });
  return out;
}

std::vector<std::int64_t> backwards() {
  std::vector<std::int64_t> order;
  for (std::int64_t b = count / unit; b-- > 0;) order.push_back(b);
  return order;
}

TEST(ReducerOrder, AllReducesStartInBucketOrderForAnyOrderOfAnnouncements) {
  auto shuffled = backwards();
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
  const auto expected = reduce(3, CollectiveOptions::Progress::inline_, false, DType::f32, backwards());
  for (const auto progress : {CollectiveOptions::Progress::inline_, CollectiveOptions::Progress::thread})
    for (const bool overlap : {true, false}) {
      std::vector<int> tags;
      const auto got = reduce(3, progress, overlap, DType::f32, shuffled, &tags);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), count * 4), 0) << "overlap " << overlap;
      std::vector<int> order;
      for (int step = 0; step < 2; ++step)
        for (int b = 0; b < 8; ++b) order.push_back(b);  // 37 blocks in buckets of 5
      EXPECT_EQ(tags, order);
    }
}

TEST(ReducerOrder, TheResultIsTheSumOverAllRanks) {
  const auto got = reduce(4, CollectiveOptions::Progress::thread, true, DType::f32, backwards());
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int r = 0; r < 4; ++r) sum += double(value(r, 1, i));
    ASSERT_NEAR(got[std::size_t(i)], sum, 1e-6) << i;
  }
  const auto alone = reduce(1, CollectiveOptions::Progress::automatic, true, DType::f32, backwards());
  for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(alone[std::size_t(i)], value(0, 1, i));
}

TEST(ReducerOrder, SixteenBitGradientsRoundOncePerRankAndOnceForTheSum) {
  for (const auto& [dtype, bits] : {std::pair(DType::bf16, 8), std::pair(DType::f16, 11)}) {
    const auto got = reduce(4, CollectiveOptions::Progress::thread, true, dtype, backwards());
    const double half = std::ldexp(1.0, -bits);
    std::int64_t rounded = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0, size = 0;
      for (int r = 0; r < 4; ++r) {
        sum += double(value(r, 1, i));
        size += std::abs(double(value(r, 1, i)));
      }
      ASSERT_LE(std::abs(got[std::size_t(i)] - sum), half * (size + std::abs(sum)) * 1.02 + 1e-6)
          << name_of(dtype) << i;
      rounded += std::abs(got[std::size_t(i)] - sum) > 1e-6;
    }
    EXPECT_GT(rounded, count / 2) << name_of(dtype) << ": nothing was rounded";
  }
}

TEST(ReducerOrder, ARangeAnnouncedTwiceIsRefused) {
  const auto world = solo_world();
  const ExecutionContext compute = make_cpu_context(*world, {});
  const SharedRegion gradient = compute.collective->allocate(count * 4);
  Reducer reducer(*compute.collective, *compute.backend, {count, {5 * unit}, DType::f32, true, true}, gradient, {});
  reducer.on_gradient_ready(0, count);
  reducer.on_gradient_ready(0, unit);
  EXPECT_THROW(reducer.finish(), Error);
}

}  // namespace reducer_order_test
}  // namespace millrace
