#include "millrace/data/bench.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "millrace/base/error.hpp"
#include "support/host_device.hpp"

namespace millrace {
namespace {

// Correctness only: speed is judged by `millrace bench loader` on a quiet machine.
TEST(Bench, LoaderAgainstBareReadsGivesFigures) {
  test::HostDevice device;
  LoaderBenchOptions o;
  o.rows = 2048, o.samples = 4096, o.cold_samples = 256, o.repeats = 3;
  if (std::getenv("MILLRACE_BENCH")) o = {};
  const LoaderBench b = bench_loader(device, o);
  ASSERT_EQ(b.cached.size(), 3u);
  EXPECT_EQ(b.cold.empty(), !b.no_cold.empty());
  for (const auto* rows : {&b.cached, &b.cold})
    for (const LoaderBenchRow& row : *rows) {
      EXPECT_GT(row.samples_per_second, 0) << row.name;
      EXPECT_EQ(row.ratio > 0, row.name.starts_with("loader")) << row.name;
    }
  std::cout << b.str() << "\n";
  o.rows = 3;
  EXPECT_THROW(bench_loader(device, o), Error);
}

}  // namespace
}  // namespace millrace
