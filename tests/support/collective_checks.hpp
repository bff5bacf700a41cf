// Checks that every Collective must pass, whether its ranks are MPI processes or threads.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/types.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace {

inline float value_of(int rank, std::size_t i) { return float((int(i) * 37 + rank * 101) % 1009) / 64 - 7; }

template <class T>
void fill(const SharedRegion& region, int rank, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) static_cast<T*>(region.data)[i] = T(value_of(rank, i));
}

// The expected sum of all ranks, added in the order of the ranks and rounded once.
template <class T>
T sum_of(int ranks, std::size_t i) {
  if constexpr (std::is_same_v<T, double>) {
    double sum = double(T(value_of(0, i)));
    for (int r = 1; r < ranks; ++r) sum += double(T(value_of(r, i)));
    return sum;
  } else {
    float sum = float(T(value_of(0, i)));
    for (int r = 1; r < ranks; ++r) sum += float(T(value_of(r, i)));
    return T(sum);
  }
}

// The expected sum if each host first adds the values of its ranks and rounds the result before it sends it to other
// hosts. This is allowed for 16-bit types.
template <class T>
T sum_of_hosts(const std::vector<int>& node_of, std::size_t i) {
  T sums[16] = {};
  const int nodes = 1 + *std::max_element(node_of.begin(), node_of.end());
  for (int n = 0; n < nodes; ++n) {
    float own = 0;
    for (std::size_t r = 0; r < node_of.size(); ++r)
      if (node_of[r] == n) own += float(T(value_of(int(r), i)));
    sums[n] = T(own);
  }
  float sum = 0;
  for (int n = 0; n < nodes; ++n) sum += float(sums[n]);
  return T(sum);
}

template <class T>
void check_sum(World& world, Collective& collective, DType dtype, std::size_t begin, std::size_t count) {
  const std::size_t all = begin + count + 7;
  const SharedRegion region = collective.allocate(all * sizeof(T));
  fill<T>(region, world.rank(), all);
  collective.all_reduce_async(region, begin, count, dtype, 1);
  collective.finish();
  std::vector<int> node_of;
  for (const std::string& node : world.gather(std::to_string(world.node()))) node_of.push_back(std::stoi(node));
  std::size_t wrong = 0, touched = 0;
  const T* data = static_cast<T*>(region.data);
  for (std::size_t i = 0; i < all; ++i) {
    const bool inside = i >= begin && i < begin + count;
    const T expected = inside ? sum_of<T>(world.size(), i) : T(value_of(world.rank(), i));
    // The values are small multiples of 1/64: float sums are exact in any order.
    if (std::memcmp(&expected, &data[i], sizeof(T)) == 0) continue;
    if constexpr (sizeof(T) == 2)
      if (const T two = sum_of_hosts<T>(node_of, i); inside && std::memcmp(&two, &data[i], sizeof(T)) == 0) continue;
    (inside ? wrong : touched) += 1;
  }
  EXPECT_EQ(wrong, 0u) << name_of(dtype) << " [" << begin << ", +" << count << ")";
  EXPECT_EQ(touched, 0u) << "elements outside of the range";
}

inline void check_all(World& world, Collective& collective) {
  for (const std::size_t count : {1u, 63u, 64u, 1000u, 65537u})
    for (const std::size_t begin : {0u, 5u}) {
      check_sum<float>(world, collective, DType::f32, begin, count);
      check_sum<double>(world, collective, DType::f64, begin, count);
      check_sum<bf16>(world, collective, DType::bf16, begin, count);
      check_sum<f16>(world, collective, DType::f16, begin, count);
    }
}

// Many operations in flight on neighbouring ranges, in the order in which the Reducer begins them.
inline void check_pipeline(World& world, Collective& collective) {
  constexpr std::size_t parts = 13, part = 4096;
  const SharedRegion region = collective.allocate(parts * part * sizeof(float));
  std::vector<CommSpan> spans;
  collective.take_spans(spans);  // removes the spans of earlier checks
  for (int round = 0; round < 5; ++round) {
    fill<float>(region, world.rank(), parts * part);
    for (std::size_t p = parts; p-- > 0;) collective.all_reduce_async(region, p * part, part, DType::f32, int(p));
    collective.finish();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < parts * part; ++i)
      wrong += static_cast<float*>(region.data)[i] != sum_of<float>(world.size(), i);
    EXPECT_EQ(wrong, 0u) << "round " << round;
    double sums[2] = {double(world.rank()), 1};
    collective.all_reduce_scalars(sums);
    EXPECT_EQ(sums[0], world.size() * (world.size() - 1) / 2);
    EXPECT_EQ(sums[1], world.size());
  }
  collective.take_spans(spans);
  EXPECT_EQ(spans.size(), world.size() > 1 ? 5 * parts : 0u);
  for (const CommSpan& s : spans) {
    EXPECT_TRUE(s.queued <= s.started && s.started <= s.ended);
    EXPECT_EQ(s.op, CollectiveOp::all_reduce);
  }
}

inline void check_scatter_gather(World& world, Collective& collective) {
  const std::size_t part = 1000, count = part * std::size_t(world.size());
  const SharedRegion region = collective.allocate(count * sizeof(float));
  fill<float>(region, world.rank(), count);
  std::vector<CommSpan> spans;
  collective.take_spans(spans);  // removes the spans of earlier checks
  collective.reduce_scatter_async(region, 0, count, DType::f32, 0);
  collective.finish();
  std::size_t wrong = 0;
  for (std::size_t i = part * std::size_t(world.rank()); i < part * std::size_t(world.rank() + 1); ++i)
    wrong += static_cast<float*>(region.data)[i] != sum_of<float>(world.size(), i);
  EXPECT_EQ(wrong, 0u) << "reduce_scatter";
  collective.all_gather_async(region, 0, count, DType::f32, 0);
  collective.finish();
  for (std::size_t i = 0; i < count; ++i)
    wrong += static_cast<float*>(region.data)[i] != sum_of<float>(world.size(), i);
  EXPECT_EQ(wrong, 0u) << "all_gather";
  collective.take_spans(spans);
  if (world.size() == 1) return;
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].op, CollectiveOp::reduce_scatter);
  EXPECT_EQ(spans[1].op, CollectiveOp::all_gather);
}

// A reduce-scatter gives each rank the bits that an all-reduce gives it, for short and long parts and all types.
template <class T>
void check_scatter_like_sum(World& world, Collective& collective, DType dtype) {
  for (const std::size_t part : {64, 1000, 100'000, 700'001}) {
    const std::size_t begin = 64, count = part * std::size_t(world.size()), all = begin + count;
    const SharedRegion sums = collective.allocate(all * sizeof(T)), parts = collective.allocate(all * sizeof(T));
    for (const SharedRegion& region : {sums, parts})
      for (std::size_t i = 0; i < all; ++i)  // values whose float sum depends on the order
        static_cast<T*>(region.data)[i] = T(value_of(world.rank(), i) * (world.rank() % 2 ? 1e-3f : 1.1f));
    collective.all_reduce_async(sums, begin, count, dtype, 1);
    collective.reduce_scatter_async(parts, begin, count, dtype, 2);
    collective.finish();
    const std::size_t own = (begin + part * std::size_t(world.rank())) * sizeof(T);
    EXPECT_EQ(std::memcmp(static_cast<char*>(sums.data) + own, static_cast<char*>(parts.data) + own, part * sizeof(T)),
              0)
        << name_of(dtype) << ", parts of " << part;
    collective.all_gather_async(parts, begin, count, dtype, 3);
    collective.finish();
    const auto *expected = static_cast<T*>(sums.data), *actual = static_cast<T*>(parts.data);
    EXPECT_EQ(std::memcmp(expected, actual, all * sizeof(T)), 0) << name_of(dtype) << ", gathered parts of " << part;
  }
}

// Scalars are added in rank order, on all ranks, wherever the ranks are.
inline void check_scalars(World& world, Collective& collective) {
  for (int round = 0; round < 5; ++round) {
    const auto value = [&](int rank, std::size_t i) {
      return (rank % 2 ? -1e16 : 1e16) * double(i % 3) + double(rank + round) + 0.1 * double(i);
    };
    std::vector<double> sums(100), expected(100);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = value(world.rank(), i);
      expected[i] = value(0, i);
      for (int r = 1; r < world.size(); ++r) expected[i] += value(r, i);
    }
    collective.all_reduce_scalars(sums);
    EXPECT_EQ(sums, expected) << "round " << round;
  }
}

// Several all-gathers begin together. Each result is used right after its wait(), while later ones are still running.
inline void check_waits(World& world, Collective& collective) {
  constexpr std::size_t buckets = 6, part = 500;
  const std::size_t rank = std::size_t(world.rank()), ranks = std::size_t(world.size()), bucket = part * ranks;
  const SharedRegion region = collective.allocate(buckets * bucket * sizeof(float));
  auto* data = static_cast<float*>(region.data);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < buckets * bucket; ++i)  // only the part of this rank has the right values
      data[i] = i % bucket / part == rank ? value_of(round, i) : -1;
    for (std::size_t b = 0; b < buckets; ++b)
      collective.all_gather_async(region, b * bucket, bucket, DType::f32, int(b));
    for (std::size_t b = 0; b < buckets; ++b) {
      collective.wait(int(b));
      std::size_t wrong = 0;
      for (std::size_t i = b * bucket; i < (b + 1) * bucket; ++i) wrong += data[i] != value_of(round, i);
      EXPECT_EQ(wrong, 0u) << "bucket " << b << " of round " << round;
    }
  }
}

// All-gathers of a few doubles that the caller waits for, again and again in the same memory.
inline void check_blocking_gathers(World& world, Collective& collective) {
  constexpr std::size_t part = 7;
  const std::size_t rank = std::size_t(world.rank()), count = part * std::size_t(world.size());
  const SharedRegion region = collective.allocate(count * sizeof(double));
  auto* data = static_cast<double*>(region.data);
  std::vector<CommSpan> spans;
  collective.take_spans(spans);  // removes the spans of earlier checks
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < part; ++i) data[rank * part + i] = double(value_of(round, rank * part + i));
    collective.all_gather(region, 0, count, DType::f64, -9);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(data[i], double(value_of(round, i))) << "round " << round;
  }
  collective.take_spans(spans);
  EXPECT_EQ(spans.size(), world.size() > 1 ? 20u : 0u);
  for (const CommSpan& s : spans) EXPECT_TRUE(s.blocking && s.queued <= s.started && s.started < s.ended);
}

// Collective, on a collective with a short time-out. All ranks but rank 1 start an all-reduce, so it cannot end.
// Returns how often this rank's error named rank 1 as late: once, and not at all on rank 1.
inline int times_that_rank_1_is_named(World& world, Collective& collective) {
  int named = 0;
  const SharedRegion region = collective.allocate(4096);
  if (world.rank() != 1) try {
      collective.all_reduce_async(region, 0, 100, DType::f32, 42);
      collective.finish();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::comm);
      EXPECT_NE(std::string(e.what()).find("late: rank 1"), std::string::npos) << e.what();
      ++named;
    }
  world.barrier();
  return named;
}

}  // namespace millrace
