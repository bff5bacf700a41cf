// The passes of attention, counted by hand.
#include <gtest/gtest.h>

#include "millrace/roofline/passes.hpp"
#include "roofline/counted_passes.hpp"
#include "roofline/networks.hpp"

namespace millrace::roofline {
namespace attention_passes_test {

using enum PassKind;

constexpr Phase forward = Phase::forward, backward = Phase::backward;

// 2 rows of 4 positions; two heads of 8 queries share the keys of one.
TEST(Passes, AttentionOfCudnnAndOfKernels) {
  const auto passes_of = [](DType dtype) {
    auto passes = counted(
        layers({"linear 32 axis=last", "attention heads=2 key_heads=1 causal", "linear outputs"}, {4, 8}, dtype, 2, 10),
        1);
    std::erase_if(passes, [](const Counted& pass) { return pass.kind != attention; });
    return passes;
  };
  const double src = 2 * 4 * 32, dst = 2 * 4 * 16, of_queries = 4 * 2 * 2 * 4, flops = 4.0 * 2 * 2 * 10 * 8;
  const std::vector<Counted> by_cudnn = {
      {attention, forward, 2 * src + 2 * dst + of_queries, flops, 1},
      {attention, backward, 2 * (2 * src + 2 * dst) + 3 * of_queries, 2.5 * flops, 1}};
  EXPECT_EQ(passes_of(DType::bf16), by_cudnn);
  const std::vector<Counted> by_kernels = {
      {attention, forward, 4 * src + 4 * dst + of_queries, flops, 1},
      {attention, backward, 4 * (src + 3 * dst) + 2 * of_queries, 1.5 * flops, 1},  // queries
      {attention, backward, 4 * 2 * src + 2 * of_queries, 2 * flops, 1}};           // keys and values
  EXPECT_EQ(passes_of(DType::f32), by_kernels);
}

// cuDNN reads a seed, which a kernel writes. Kernels draw by themselves.
TEST(Passes, DropoutOfAttention) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto passes =
        counted(layers({"linear 32 axis=last", "attention heads=2 key_heads=1 dropout=0.1", "linear outputs"}, {4, 8},
                       dtype, 2, 10),
                1);
    const bool seeds = std::ranges::any_of(passes, [](const Counted& pass) { return pass.kind == dropout; });
    EXPECT_EQ(seeds, dtype == DType::bf16);
  }
}

}  // namespace attention_passes_test
}  // namespace millrace::roofline
