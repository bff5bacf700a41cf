#include <gtest/gtest.h>

#include "millrace/roofline/passes.hpp"

namespace millrace::roofline {
namespace muon_passes_test {

struct Total {
  double bytes = 0, flops = 0;
  int launches = 0;
};

Total total_of(const std::vector<Pass>& passes) {
  Total out;
  for (const Pass& pass : passes) {
    out.bytes += pass.bytes;
    out.flops += pass.flops;
    out.launches += pass.launches;
  }
  return out;
}

TEST(Passes, MuonMultipliesMatrices) {
  OptimizerSpec spec;
  spec.kind = OptimizerSpec::Kind::muon;
  spec.count = 4096 + 256;
  spec.segments = {{0, 4096, 0, 1, 32, 128}, {4096, 256}};
  spec.weight_dtype = DType::bf16;
  const auto [bytes, flops, launches] = total_of(optimizer_passes(spec));
  const double gram = 32 * 32 * 4.0, x = 4096 * 4.0;
  // Momentum: gradient, moment, moment, update. Norm. Five steps. Result, weight, weight. As AdamW.
  EXPECT_EQ(bytes, 4 * 4352 + 4 * x + 2 * x + 5 * (3 * x + 4 * gram) + 3 * x + 2 * 4096 + (16 + 12 + 2) * 256);
  EXPECT_EQ(flops, 5 * (2 * 2.0 * 32 * 32 * 128 + 2.0 * 32 * 32 * 32));
  EXPECT_EQ(launches, 1 + 1 + 1 + 1 + 15 + 1 + 1);
}

// The first of two ranks owns half of the matrix, and needs the updates of the other half.
TEST(Passes, MuonCollectsUpdatesIfTheParametersAreSharded) {
  OptimizerSpec spec;
  spec.kind = OptimizerSpec::Kind::muon;
  spec.count = 4 * 4096;
  spec.segments = {{0, 8192, 0, 1, 64, 128}, {8192, 256}, {12288, 4096, 0, 1, 32, 128}};
  spec.shards = {{0, 4096}, {8192, 4096}};
  spec.weight_dtype = DType::bf16;
  const auto [bytes, flops, launches] = total_of(optimizer_passes(spec));
  const double gram = 64 * 64 * 4.0, x = 8192 * 4.0;
  EXPECT_EQ(bytes, 4 * 4352 + 4 * 4 * 4096 + 2 * x + 2 * x + 5 * (3 * x + 4 * gram) + (3 * 4 + 2) * 4096 +
                       (16 + 12 + 2) * 256);
  EXPECT_EQ(flops, 5 * (2 * 2.0 * 64 * 64 * 128 + 2.0 * 64 * 64 * 64));
  EXPECT_EQ(launches, 2 + 1 + 1 + 1 + 1 + 15 + 1 + 1);
}

}  // namespace muon_passes_test
}  // namespace millrace::roofline
