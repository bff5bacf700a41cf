// Networks at every fusion level, with the CUDA backend's graphs and kernels, compared with the CPU in float32.
#include <algorithm>

#include "cpu/backend.hpp"
#include "support/forwarding_backend.hpp"
#include "support/op_harness.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace fusion_levels_test {

using namespace test;

ModelSpec resnet(std::int64_t depth) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = depth;
  spec.width = 8;
  spec.stem = "pool";
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}

class Levels : public ::testing::TestWithParam<int> {
 protected:
  static std::unique_ptr<ProgramFixture> network(Backend& on, int level, DType dtype) {
    auto bench = std::make_unique<ProgramFixture>(device(), on, resnet(8), 6, Shape{10, 8, 3}, level, dtype);
    for (float& w : bench->master) w = float(f16(w));  // the same weights in every type
    return bench;
  }
};

TEST_P(Levels, GiveTheGradientOfTheCpuInFloat32) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend(device());
  const auto expected = network(*cpu, 0, DType::f32), actual = network(backend(), GetParam(), DType::f32);
  expect_near(*actual, *expected, {2e-6, 2e-5, 2e-6});
  EXPECT_EQ(count_fused(actual->program->graph(), &ConvSpec::produces_sums), 0);
  EXPECT_EQ(actual->notes.size(), GetParam() < 2 ? 0u : 12u);
}

// Each value between two operations is rounded by 2^-12. Norms over few values amplify that to some percent of the
// gradient after nine layers. Levels 0 to 2 have nearly the same rounding, except that level 0 rounds before and after
// an addition. At level 3 the results of norms are rounded from another scale and bias. That is as near to the exact
// gradient, but as far from the others as two roundings are.
TEST_P(Levels, GiveNearlyTheGradientOfLevelZeroInHalfPrecision) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend(device());
  const auto exact = network(*cpu, 0, DType::f32), plain = network(backend(), 0, DType::f16),
             actual = network(backend(), GetParam(), DType::f16);
  expect_near(*actual, *exact, {1e-3, 0.12, 1e-3});
  if (GetParam() < 3) expect_near(*actual, *plain, {2e-4, 1e-2, 4e-4});
  const Graph& graph = actual->program->graph();
  const bool fuses = GetParam() >= 2;
  EXPECT_EQ(count_fused(graph, &ConvSpec::produces_sums), fuses ? 8 : 0);  // all but the stem
  EXPECT_EQ(count_fused(graph, &ConvSpec::produces_diff_sums), fuses ? 3 : 0);
  EXPECT_EQ(count_fused(graph, &ConvSpec::normalises_src), GetParam() == 3 ? 3 : 0);
  EXPECT_EQ(actual->notes.size(), fuses ? 1u : 0u);
}

// The result of the first ReLU, which the max pool reads, and the results of the norms of projections are not stored,
// and neither are their gradients.
TEST(MergedNorms, TakeLessMemory) {
  struct Apart : ForwardingBackend {
    using ForwardingBackend::ForwardingBackend;
    bool merges_norm(const BatchNormSpec&) const override { return false; }
  } apart(backend());
  const Graph graph = build_model(resnet(8), {6, {20, 16, 3}, DType::u8, {}, true}, DType::f16, Mode::train);
  const MemoryPlan merged = compile_graph(backend(), graph, 1).plan, plain = compile_graph(apart, graph, 1).plan;
  const auto holds = [](const MemoryPlan& plan, const std::string& name) {
    return std::any_of(plan.regions.begin(), plan.regions.end(), [&](const Region& r) { return r.name == name; });
  };
  for (const std::string value : {"relu", "layer2.0.downsample.1", "layer3.0.downsample.1"})
    for (const std::string& name : {value, value + ".diff"}) {
      EXPECT_TRUE(holds(plain, name)) << name;
      EXPECT_FALSE(holds(merged, name)) << name;
    }
  EXPECT_LT(merged.arena_bytes, plain.arena_bytes);
}

INSTANTIATE_TEST_SUITE_P(Cuda, Levels, ::testing::Values(1, 2, 3));

}  // namespace fusion_levels_test
}  // namespace millrace
