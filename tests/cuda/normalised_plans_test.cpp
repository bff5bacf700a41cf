// Fusion level 3: cuDNN's engines that normalise the source of a convolution, for the description of an H200, and when
// they are used.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/conv_candidate.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace normalised_plans_test {

using namespace cuda;

std::string h200() { return read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"); }

ConvSpec conv(std::int64_t extent, std::int64_t channels, std::int64_t out_channels, int kernel, int stride) {
  ConvSpec s;
  s.src = {256, extent, extent, channels};
  s.out_channels = out_channels;
  s.window = {.kernel = {kernel, kernel, 1}, .stride = {stride, stride, 1}, .pad = {kernel / 2, kernel / 2, 0}};
  s.dtype = DType::f16;
  s.produces_sums = s.produces_diff_sums = s.normalises_src = true;
  return s;
}

std::size_t plan_count(const cudnn::DeviceTarget& target, const cudnn::ConvProblem& problem) {
  const auto plans = cudnn::ConvGraph(target, problem).plans({}, 100);
  return plans.empty() || plans.front().runtime_compiled() ? 0 : plans.size();
}

// The convolutions of ResNet-50 that follow an inner norm of a block.
TEST(FusedPlans, EveryInnerShapeOfResNet50IsNormalisedByPrecompiledEngines) {
  const auto target = cudnn::DeviceTarget::described_by(h200());
  for (const auto& [extent, channels] : {std::pair{56, 64}, {28, 128}, {14, 256}, {7, 512}}) {
    std::vector<ConvSpec> shapes{conv(extent, channels, channels, 3, 1), conv(extent, channels, 4 * channels, 1, 1)};
    if (extent < 56) shapes.push_back(conv(2 * extent, channels, channels, 3, 2));
    for (ConvSpec s : shapes) {
      EXPECT_EQ(plan_count(target, forward_problem(s, channels, false)), 9u) << s.src.str();
      EXPECT_EQ(plan_count(target, weights_problem(s, channels)), 11u) << s.src.str();
      s.produces_sums = false;
      EXPECT_EQ(plan_count(target, forward_problem(s, channels, false)), 0u) << "Hopper has no engine without sums";
      s.produces_sums = true;
      s.dtype = DType::bf16;
      EXPECT_EQ(plan_count(target, forward_problem(s, channels, false)), 0u);
      EXPECT_EQ(plan_count(target, weights_problem(s, channels)), 0u);
    }
  }
}

TEST(FusedPlans, TheReasonAgainstNormalisingIsNamed) {
  cudnn::Cudnn library(h200(), {});
  ConvSpec s = conv(14, 64, 64, 3, 1);
  EXPECT_EQ(why_not_fused(s, library), "");
  s.produces_sums = false;
  EXPECT_NE(why_not_fused(s, library).find("has no engine for it without sums in fp16"), std::string::npos);
  s = conv(14, 64, 64, 7, 1);
  EXPECT_NE(why_not_fused(s, library).find("has no engine for it with sums in fp16"), std::string::npos);
  s = conv(14, 12, 16, 3, 1);
  EXPECT_EQ(why_not_fused(s, library), "its 12 channels are padded");
}

// Both directions count together, against the plain ones and the pass of the norm, which reads and writes 6.4 MB.
TEST(FusedPlans, NormalisingMustNotBeSlowerThanThePassOfTheNorm) {
  cudnn::Options options;
  options.copy_bytes_per_second = 3.2e12;
  const ConvSpec s = conv(14, 64, 64, 3, 1);
  const double pass = 2 * 2 * double(s.src.count()) / options.copy_bytes_per_second;
  EXPECT_NEAR(pass, 4e-6, 0.1e-6);
  const auto why = [&](double forward, double weights) {
    cudnn::Cudnn library(h200(), options);
    const auto known = [&](cudnn::ConvProblem problem, bool fused, double seconds) {
      problem.normalise = fused;
      library.choices().cache().insert(fmt::format("{} {} untimed", problem.key(), options.rules.key()),
                                       {"a plan", seconds});
    };
    for (const bool fused : {true, false}) {
      known(forward_problem(s, 64, false), fused, fused ? forward : 20e-6);
      known(weights_problem(s, 64), fused, fused ? weights : 30e-6);
    }
    return why_not_fused(s, library);
  };
  EXPECT_EQ(why(23e-6, 30.9e-6), "");
  EXPECT_EQ(why(18e-6, 35.9e-6), "") << "the sum of both decides";
  EXPECT_EQ(why(23e-6, 32e-6), "slower: 55 us for 50 + 4 at 3.2 TB/s");
  EXPECT_EQ(why(0, 90e-6), "") << "not timed";
}

}  // namespace normalised_plans_test
}  // namespace millrace
