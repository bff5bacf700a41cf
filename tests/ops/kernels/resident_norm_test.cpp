// Norms that keep their tensors in the memory of the multiprocessors. batch_norm_test.cpp compares their results with a
// reference.
#include "cuda/block/block.hpp"
#include "millrace/ops/batch_norm_layout.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace resident_norm_test {

using namespace test;

std::string implementation(const Shape& src, DType dtype, bool consumes = false) {
  BatchNormSpec s;
  s.src = src;
  s.dtype = dtype;
  s.consumes_sums = s.consumes_diff_sums = consumes;
  return backend().make(s)->implementation();
}

// The backend of this test has 8 blocks of 113 KiB.
TEST(ResidentNorm, IsUsedWhereTheTensorsFit) {
  EXPECT_EQ(implementation({8, 16, 16, 64}, DType::f16), "kernel, one in each direction");  // 256 KiB
  EXPECT_EQ(implementation({20, 16, 16, 64}, DType::f16), "kernel, one forward");           // 640 KiB
  EXPECT_EQ(implementation({20, 16, 16, 64}, DType::f32), "kernel");                        // 1280 KiB
  EXPECT_EQ(implementation({8, 16, 16, 64}, DType::f16, true), "kernel");                   // makes no pass over src
  EXPECT_EQ(implementation({2, 2, 2, 8 * 32 * 9}, DType::f16), "kernel");                   // more tiles than blocks
}

// Every pack that a thread loads has a slot, for all ways in which lines can be left over.
TEST(ResidentNorm, EachPackOfAThreadHasASlot) {
  using namespace batch_norm;
  const OnChipMemory memory{4, 228 << 10};
  for (const std::int64_t channels : {8, 24, 43, 64, 600})
    for (std::int64_t rows = 1; rows < 1500; rows += rows < 300 ? 1 : 37) {
      const Layout l = layout_of(rows * channels, channels);
      const ResidentPlan plan = plan_forward(l, 2, false, memory);
      ASSERT_GT(plan.slabs, 0);
      const int group = l.lanes * plan.lines, groups = l.whole_lines / group;
      for (int slab = 0; slab < plan.slabs; ++slab) {  // as for_each_line()
        int packs = (groups - slab + plan.slabs - 1) / plan.slabs * plan.lines;
        if (groups % plan.slabs == slab) packs += (l.lines - groups * group + l.lanes - 1) / l.lanes;
        ASSERT_LE(packs, plan.slots) << rows << " rows of " << channels;
      }
    }
}

// 14 x 14 x 256 at batch 256 in fp16, the largest tensor of ResNet-50 that fits on an H200, does not fit twice.
TEST(ResidentNorm, ThatFitsOnAnH200) {
  using namespace batch_norm;
  const OnChipMemory h200{132, 228 << 10};
  const auto fits = [&](std::int64_t size, std::int64_t channels, bool both) {
    const Layout l = layout_of(256 * size * size * channels, channels);
    return both ? plan_backward(l, 2, h200).fits : plan_forward(l, 2, false, h200).fits;
  };
  EXPECT_TRUE(fits(14, 256, false));
  EXPECT_FALSE(fits(14, 256, true));
  EXPECT_TRUE(fits(7, 512, true));
  EXPECT_FALSE(fits(7, 2048, false));
  EXPECT_FALSE(plan_forward(layout_of(64, 8), 2, false, {}).fits);
}

struct Exchange {
  int *values, *sums;
  unsigned* gate;
  template <class Block>
  void operator()(Block& block) const {
    const unsigned before = block.gate(gate);
    if (block.thread() == 0) values[block.index()] = int(block.index()) + 1;
    if (block.is_last(gate + 1, unsigned(block.blocks())))
      block.open(gate);
    else
      block.pass(gate, before);
    int sum = 0;
    for (int b = 0; b < block.blocks(); ++b) sum += values[b];
    if (sum = block.max(sum); block.thread() == 0) sums[block.index()] = sum;
  }
};

TEST(ResidentBlocks, PassTheGateWhenAllHaveCome) {
  unsigned gate[2] = {~0u, 0};
  for (int round = 0; round < 3; ++round)
    for (const int blocks : {1, 2, 9}) {
      std::vector<int> values(std::size_t(blocks), 0), sums(std::size_t(blocks), 0);
      cuda::launch_together(cuda::LaunchContext{}, blocks, 64, 0, Exchange{values.data(), sums.data(), gate});
      EXPECT_EQ(sums, std::vector<int>(std::size_t(blocks), blocks * (blocks + 1) / 2));
    }
}

}  // namespace resident_norm_test
}  // namespace millrace
