// A source whose values are the numbers of its samples, for tests of the loader.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/read/source.hpp"
#include "support/host/device.hpp"

namespace millrace::test {

inline ShardIndex index_of(std::int64_t rows) {
  ShardIndex d;
  d.rows = rows;
  d.sample = {5, 3, 1};
  d.x.dtype = DType::i16;
  return d;
}

// All values of sample `id` are id. Reads are slow, or fail, on request.
class Numbers : public Source {
 public:
  std::int64_t fail_at = -1;
  std::atomic<std::chrono::microseconds> delay{std::chrono::microseconds(0)};
  std::atomic<int> concurrent{0}, max_concurrent{0};
  int limit = 1 << 20;
  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const int now = ++concurrent;
    for (int max = max_concurrent; max < now && !max_concurrent.compare_exchange_weak(max, now);) continue;
    if (const auto wait = delay.load(); wait.count()) std::this_thread::sleep_for(wait);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == fail_at) {
        --concurrent;
        fail(Exit::data, "shard-7 ends before sample {}", ids[i]);
      }
      for (int v = 0; v < 15; ++v) static_cast<std::int16_t*>(x)[i * 15 + std::size_t(v)] = std::int16_t(ids[i]);
      static_cast<std::int32_t*>(y)[i] = std::int32_t(ids[i] * 2);
    }
    --concurrent;
  }
  std::string describe() const override { return "numbers"; }
  int max_workers() const override { return limit; }
};

// The micro-batches of the first `steps` steps on one rank.
inline std::function<std::optional<MicroBatch>()> items_of(const Sampler& sampler, std::int64_t steps) {
  std::vector<MicroBatch> all;
  for (std::int64_t s = 0; s < steps; ++s)
    for (const MicroBatch& m : sampler.share(s / sampler.steps_per_epoch(), s % sampler.steps_per_epoch(), 0, 1))
      all.push_back(m);
  return [all, at = std::size_t(0)]() mutable -> std::optional<MicroBatch> {
    if (at == all.size()) return std::nullopt;
    return all[at++];
  };
}

// The ids of all samples that a loader hands out. Checks every value.
inline std::vector<std::int64_t> all_ids(Loader& loader) {
  std::vector<std::int64_t> out;
  while (const Batch* b = loader.next()) {
    const std::int64_t rows = b->item.rows;
    EXPECT_EQ(b->x.shape, (Shape{rows, 5, 3, 1}));
    EXPECT_EQ(b->y.shape, (Shape{rows}));
    EXPECT_EQ(b->ids.shape, (Shape{rows}));
    EXPECT_EQ(b->x.dtype, DType::i16);
    EXPECT_EQ(b->y.dtype, DType::i32);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t id = b->ids.as<std::int64_t>()[r];
      for (int v = 0; v < 15; ++v) EXPECT_EQ(b->x.as<std::int16_t>()[r * 15 + v], std::int16_t(id));
      EXPECT_EQ(b->y.as<std::int32_t>()[r], std::int32_t(id * 2));
      out.push_back(id);
    }
  }
  EXPECT_EQ(loader.next(), nullptr);
  return out;
}

}  // namespace millrace::test
