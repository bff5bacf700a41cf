// Linear layers of the CUDA backend at every fusion level, compared with the CPU backend in float32.
#include <fmt/core.h>

#include "cpu/backend.hpp"
#include "support/op_harness.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace fusion_levels_test {

using namespace test;

// The widths of the layers select the kernels that the simulated library has (cublas_on_host.hpp): 64 and 16 have all
// kernels, 40 has no sum for the gradient of the bias, 24 has no epilogues, 88 has slow epilogues, and 43 is not a
// multiple of 8.
ModelSpec mlp(Activation activation) {
  ModelSpec spec;
  spec.name = "mlp";
  spec.hidden = {64, 40, 43, 16, 24, 88};
  spec.activation = activation;
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}

struct LinearLevels : ::testing::TestWithParam<std::tuple<Activation, int>> {
  static std::unique_ptr<ProgramFixture> network(Backend& on, int level, DType dtype) {
    auto bench =
        std::make_unique<ProgramFixture>(device(), on, mlp(std::get<0>(GetParam())), 6, Shape{4, 5, 3}, level, dtype);
    // Values that are exact in every dtype, and large enough that gradients reach the first layer.
    for (float& w : bench->master) w = float(bf16(2 * w));
    return bench;
  }
};

TEST_P(LinearLevels, Float32GradientMatchesTheCpu) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend(device());
  const auto expected = network(*cpu, 0, DType::f32), actual = network(backend(), std::get<1>(GetParam()), DType::f32);
  expect_near(*actual, *expected, {2e-6, 2e-5, 0});
}

// Level 2 rounds the gradient of a bias to the dtype. Level 0 rounds the values between a product and its activation.
TEST_P(LinearLevels, GradientIn16BitsIsCloseToThatOfLevelZero) {
  for (const auto& [dtype, t] : {std::pair{DType::f16, Tolerances{2e-4, 2e-3, 0}}, {DType::bf16, {2e-3, 2e-2, 0}}}) {
    const auto plain = network(backend(), 0, dtype), actual = network(backend(), std::get<1>(GetParam()), dtype);
    expect_near(*actual, *plain, t);
  }
}

TEST_P(LinearLevels, FuseIfTheLibraryHasAKernel) {
  const auto [activation, level] = GetParam();
  const auto bench = network(backend(), level, DType::f32);
  const Graph& graph = bench->program->graph();
  const int pre = count_fused(graph, &LinearSpec::consumes_diff_pre),
            bias = count_fused(graph, &LinearSpec::consumes_diff_bias);
  EXPECT_EQ(count_fused(graph, &LinearSpec::produces_diff_bias), bias);
  if (level < 2) {
    EXPECT_EQ(pre + bias, 0);
    EXPECT_TRUE(bench->notes.empty());
  } else if (activation == Activation::gelu_tanh) {
    EXPECT_EQ(pre, 3);
    EXPECT_EQ(bias, 2);
    ASSERT_EQ(bench->notes.size(), 4u);
    EXPECT_NE(bench->notes[0].find("the bias gradient is not fused into"), std::string::npos) << bench->notes[0];
    EXPECT_NE(bench->notes[1].find("(43 features are not a multiple of 8)"), std::string::npos) << bench->notes[1];
    EXPECT_NE(bench->notes[2].find("no kernel for 24 x 6 x 88"), std::string::npos) << bench->notes[2];
    EXPECT_EQ(bench->notes[3],
              "fc6: the gradient of gelu_tanh is not fused into fc7 (slower: 1000000 us for 10 + 0 at 2 TB/s)");
  } else if (activation == Activation::relu) {
    EXPECT_EQ(pre, 4);
    EXPECT_EQ(bias, 3);
    EXPECT_EQ(bench->notes.size(), 3u);
  } else {
    EXPECT_EQ(pre + bias, 0);
    EXPECT_EQ(bench->notes.size(), 6u);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, LinearLevels,
                         ::testing::Combine(::testing::Values(Activation::relu, Activation::gelu_tanh,
                                                              Activation::gelu),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return fmt::format("{}_level_{}", name_of(std::get<0>(info.param)), std::get<1>(info.param));
                         });

// A layer that takes all positions as one vector has other rows than the layer at each position before it.
TEST(LinearPositions, OnlyLayersWithTheSameRowsAreFused) {
  ModelSpec spec;
  spec.name = "layers";
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  spec.layers = {"linear 16 axis=last", "gelu_tanh",      "linear 64 axis=last", "gelu_tanh",
                 "linear 16",           "gelu_tanh as=g", "linear outputs"};
  const std::unique_ptr<Backend> cpu = make_cpu_backend(device());
  ProgramFixture expected(device(), *cpu, spec, 6, {4, 5, 3}, 0), actual(device(), backend(), spec, 6, {4, 5, 3}, 2);
  expect_near(actual, expected, {2e-6, 2e-5, 0});
  EXPECT_EQ(count_fused(actual.program->graph(), &LinearSpec::consumes_diff_pre), 2);
  ASSERT_EQ(actual.notes.size(), 1u);
  EXPECT_EQ(actual.notes[0],
            "linear2: the gradient of gelu_tanh is not fused into linear3 (it takes all positions as one vector)");
}

// The last column of the plan: what the forward product includes, and why it does not include more.
TEST(LinearPlan, ReportsActivationsThatAreNotFused) {
  const auto by = [](std::int64_t features, Mode mode = Mode::train) {
    LinearSpec s;
    s.src = {6, 20};
    s.out_features = features;
    s.activation = Activation::gelu_tanh;
    s.mode = mode;
    return backend().make(s)->implementation();
  };
  EXPECT_EQ(by(64).find("loops with bias gelu_tanh"), 0u) << by(64);
  EXPECT_EQ(by(43).find("loops with bias, gelu_tanh by a kernel (43 features are not a multiple of 8)"), 0u) << by(43);
  EXPECT_EQ(by(43, Mode::infer), "loops with bias gelu_tanh") << "inference saves nothing";
  EXPECT_EQ(by(88).find("loops with bias, gelu_tanh by a kernel (slower: "), 0u) << by(88);
  EXPECT_EQ(by(24).find("loops, gelu_tanh by a kernel (cuBLAS has no kernel for 24 x 6 x 20"), 0u) << by(24);
}

// A shared gradient must occupy memory only from the backward pass that computes it to the one that reads it.
TEST(LinearPlan, SharedGradientLivesOnlyBetweenTheTwoBackwardPasses) {
  const Graph graph =
      build_model(mlp(Activation::gelu_tanh), {6, {4, 5, 3}, DType::u8, {}, true}, DType::f32, Mode::train);
  const CompiledGraph two = compile_graph(backend(), graph, 2);
  int found = 0;
  for (const Region& r : two.plan.regions)
    if (r.name.find(".diff_bias") != r.name.npos) {
      ++found;
      EXPECT_EQ(r.last, r.first + 1) << r.name;
    }
  EXPECT_EQ(found, 2);
  const Graph evaluation =
      build_model(mlp(Activation::gelu_tanh), {6, {4, 5, 3}, DType::u8, {}, true}, DType::f32, Mode::infer);
  EXPECT_EQ(count_fused(compile_graph(backend(), evaluation, 2).graph, &LinearSpec::consumes_diff_pre), 0);
}

}  // namespace fusion_levels_test
}  // namespace millrace
