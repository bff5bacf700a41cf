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
  o.rows = 2048, o.samples = 4096, o.repeats = 3;
  if (std::getenv("MILLRACE_BENCH")) o = {};
  const LoaderBench b = bench_loader(device, o);
  EXPECT_GT(b.loader_samples_per_second, 0);
  EXPECT_GT(b.bare_samples_per_second, 0);
  EXPECT_GT(b.ratio, 0);
  std::cout << b.str() << "\n";
  o.rows = 3;
  EXPECT_THROW(bench_loader(device, o), Error);
}

}  // namespace
}  // namespace millrace
