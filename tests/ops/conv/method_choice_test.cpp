// What the timed choice of the methods of a convolution consists of: candidates, measurement, and its text.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "cpu/choice/time_methods.hpp"
#include "cpu/choice/waited.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/conv/depthwise_geometry.hpp"
#include "cpu/conv_variants/gemm_conv.hpp"
#include "cpu/onednn/onednn.hpp"
#include "cpu/winograd/tiles.hpp"
#include "millrace/base/files.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace method_choice_test {

using cpu::ConvMethod, cpu::ConvPass;
namespace fs = std::filesystem;

ConvSpec conv() {
  ConvSpec s;
  s.src = {4, 8, 8, 64};
  s.out_channels = 64;
  s.window = {.kernel = {3, 3, 1}, .pad = {1, 1, 0}};
  return s;
}

TEST(MethodChoice, TheRuleIsReplacedOnlyIfAnotherIsFasterByTheMargin) {
  constexpr double never = std::numeric_limits<double>::infinity();
  EXPECT_EQ(cpu::choose_method({1, 0.96, 2}), 0u);
  EXPECT_EQ(cpu::choose_method({1, 0.96, 0.94}), 2u);
  EXPECT_EQ(cpu::choose_method({never, 3, never}), 1u);
  EXPECT_EQ(cpu::choose_method({never, never}), 2u);
}

TEST(MethodChoice, TheTimesAreKeptAsText) {
  const std::vector<cpu::TimedMethod> methods{{ConvMethod::gemm_together, 0.0125}, {ConvMethod::direct, 2.5e-6}};
  EXPECT_EQ(cpu::text_of(methods), "gemm together=0.0125|direct=2.5e-06");
  EXPECT_EQ(cpu::read_timed_methods(cpu::text_of(methods)), methods);
  for (const char* damaged : {"", "direct", "|", "F(2x2) kn2row direct"})
    EXPECT_TRUE(cpu::read_timed_methods(damaged).empty()) << damaged;
}

TEST(MethodChoice, TheRuleIsTheFirstCandidateAndNoMethodComesTwice) {
  ConvSpec first = conv(), half = conv(), grouped = conv(), depthwise = conv();
  first.src = {4, 32, 32, 3};
  first.need_diff_src = false;
  half.dtype = DType::bf16;
  grouped.groups = 32;
  depthwise.groups = 64;
  for (ConvSpec s : {conv(), first, half, grouped, depthwise})
    for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weights}) {
      auto methods = cpu::candidates_for(s, pass, true);
      EXPECT_NE(methods.at(0), ConvMethod::rule);
      std::sort(methods.begin(), methods.end());
      EXPECT_EQ(std::adjacent_find(methods.begin(), methods.end()), methods.end());
    }
  EXPECT_EQ(cpu::candidates_for(grouped, ConvPass::forward, true).size(), 1u);
  EXPECT_EQ(cpu::candidates_for(depthwise, ConvPass::forward, true).size(),
            1u + cpu::DepthwiseGeometry::supports(depthwise));
}

TEST(MethodChoice, TilesAreTimedWhereTheRuleIsWinogradsFiltering) {
  if (!cpu::onednn::prefers_float_matmul()) GTEST_SKIP() << "tiles are for processors with AVX2 and without AVX-512";
  ConvSpec s = conv();
  s.src = {4, 32, 32, 64};
  s.out_channels = 64;
  for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weights}) {
    const auto methods = cpu::candidates_for(s, pass, true);
    EXPECT_EQ(methods.at(0), ConvMethod::winograd_4);
    EXPECT_EQ(std::ranges::count(methods, ConvMethod::tiles), 1);
  }
}

// Where the processor multiplies pairs of bf16, only for large images and many channels; not at all with AMX.
TEST(MethodChoice, WinogradsFilteringIsTheRuleForBf16UnlessProductsOfBf16AreFaster) {
  ConvSpec s = conv();
  s.dtype = DType::bf16;
  if (!cpu::winograd::supports(s)) GTEST_SKIP() << "this processor has no kernels for it";
  const auto filtered = [&](std::int64_t side, std::int64_t channels) {
    s.src = {64, side, side, channels};
    s.out_channels = channels;
    int parts = 0;
    for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weights})
      parts += cpu::is_winograd(cpu::candidates_for(s, pass, true).at(0));
    return parts;
  };
  const bool amx = cpu::onednn::has_amx(), pairs = cpu::onednn::has_pairs();
  EXPECT_EQ(filtered(16, 64), amx ? 0 : 3);
  EXPECT_EQ(filtered(8, 256), amx ? 0 : 3);
  EXPECT_EQ(filtered(6, 64), amx || pairs ? 0 : 3) << "few pixels";
  EXPECT_EQ(filtered(16, 32), amx || pairs ? 0 : 3) << "few channels";
  s.src = {1, 8, 8, 64};
  const cpu::winograd::Tiles tiles(s, cpu::ConvPart::Of::forward, 4);
  EXPECT_DOUBLE_EQ(tiles.work_share(), (pairs ? 2 : 1) * 0.25) << "of products of bf16";
}

// Timing takes fewer images than a step has. So the form of F(4x4) is that of the whole layer, and those that write
// transformed weights to memory, which is not timed, are left out beside slices.
TEST(MethodChoice, TheFormOfWinogradsFilteringIsThatOfTheWholeLayer) {
  ConvSpec s = conv();
  s.src = {64, 4, 4, 512};
  s.out_channels = 512;
  if (!cpu::winograd::supports(s)) GTEST_SKIP() << "this processor has no kernels for it";
  const auto has = [&](ConvMethod method) {
    return std::ranges::count(cpu::candidates_for(s, ConvPass::forward, true), method) == 1;
  };
  EXPECT_EQ(cpu::candidates_for(s, ConvPass::forward, true).at(0), ConvMethod::winograd_4_slices);
  EXPECT_FALSE(has(ConvMethod::winograd_4) || has(ConvMethod::winograd_4_alone));
  EXPECT_EQ(cpu::candidates_for(s, ConvPass::weights, true).at(0), ConvMethod::winograd_4);
  s.src[0] = 300;
  EXPECT_EQ(cpu::candidates_for(s, ConvPass::forward, true).at(0), ConvMethod::winograd_4);
  EXPECT_FALSE(has(ConvMethod::winograd_4_slices));
  EXPECT_TRUE(has(ConvMethod::winograd_4_alone));
  s.src[0] = 16;
  EXPECT_NE(cpu::candidates_for(s, ConvPass::forward, true).at(0), ConvMethod::winograd_4_slices) << "too few tiles";
  EXPECT_TRUE(has(ConvMethod::winograd_4_slices)) << "but it is timed";
}

TEST(MethodChoice, TurnedWeightsAreTimedForGradientsOfTheSourceOnAmx) {
  ConvSpec s = conv();
  s.dtype = DType::bf16;
  const auto has = [&](ConvPass pass) {
    return std::ranges::count(cpu::candidates_for(s, pass, true), ConvMethod::turned) == 1;
  };
  EXPECT_EQ(has(ConvPass::data), cpu::onednn::has_amx());
  EXPECT_FALSE(has(ConvPass::forward) || has(ConvPass::weights));
  s.window.stride = {2, 2, 1};
  EXPECT_FALSE(has(ConvPass::data));
}

ConvSpec pointwise(std::int64_t pixels, std::int64_t in, std::int64_t out) {
  ConvSpec s;
  s.src = {4, pixels, 1, in};
  s.out_channels = out;
  s.dtype = DType::bf16;
  return s;
}

TEST(MethodChoice, ProductsComputeOneByOneKernelsOnAmx) {
  const int threads = cpu::thread_count();
  const auto rule = [](const ConvSpec& s, ConvPass pass) {
    const auto method = cpu::gemm_by_rule(s, pass);
    return method ? cpu::name_of(*method) : std::string("another");
  };
  const std::string alone = cpu::onednn::has_amx() ? "gemm" : "another",
                    together = cpu::onednn::has_amx() ? "gemm together" : "another";
  cpu::set_thread_count(2);
  EXPECT_EQ(rule(pointwise(64, 32, 32), ConvPass::weights), alone);
  EXPECT_EQ(rule(pointwise(64, 512, 128), ConvPass::weights), together);
  EXPECT_EQ(rule(pointwise(64, 31, 32), ConvPass::weights), "another");
  EXPECT_EQ(rule(pointwise(64, 16, 32), ConvPass::data), together);
  EXPECT_EQ(rule(pointwise(64, 32, 31), ConvPass::data), "another");
  EXPECT_EQ(rule(pointwise(16, 1024, 1024), ConvPass::forward), together);
  EXPECT_EQ(rule(pointwise(17, 1024, 1024), ConvPass::forward), "another");
  EXPECT_EQ(rule(pointwise(16, 1024, 1023), ConvPass::forward), "another");
  cpu::set_thread_count(1);
  EXPECT_EQ(rule(pointwise(64, 512, 128), ConvPass::weights), alone);
  cpu::set_thread_count(threads);
  ConvSpec single = pointwise(64, 64, 64), biased = single, grouped = single, dense = conv();
  single.dtype = DType::f32;
  biased.bias = true;
  grouped.groups = 2;
  dense.dtype = DType::bf16;
  for (const ConvSpec& s : {single, biased, grouped, dense})
    for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weights})
      EXPECT_EQ(rule(s, pass), "another");
}

// In the first measurement, the rule (0) seems ten times as slow as 1 and 2. When it is timed beside 1, both are slower
// than 2 was, and equal.
TEST(MethodChoice, ASecondMeasurementDecidesOnlyBetweenItsTwoMethods) {
  int calls_of_rule = 0;
  double second = 1.19e-3;
  const auto measure = [&](std::size_t method, int count) {
    calls_of_rule += method == 0;
    if (calls_of_rule < 3) return count * (method == 0 ? 1e-2 : method == 1 ? 1.00e-3 : 1.02e-3);
    EXPECT_NE(method, 2u);
    return count * (method == 0 ? 1.2e-3 : second);
  };
  const cpu::MethodTimes equal = cpu::time_methods(3, measure);
  EXPECT_EQ(equal.chosen, 0u);
  EXPECT_DOUBLE_EQ(equal.seconds[0], 1.2e-3);
  EXPECT_DOUBLE_EQ(equal.seconds[1], 1.19e-3);
  calls_of_rule = 0;
  second = 1.1e-3;
  EXPECT_EQ(cpu::time_methods(3, measure).chosen, 1u);
}

TEST(MethodChoice, WaitsForCoresAreSummedOverTheThreadsThatCompute) {
  const test::TemporaryFolder root;
  const fs::path tasks = root.path / "proc/self/task";
  EXPECT_EQ(cpu::waited_seconds({11, 12}, root.path), -1);
  for (const auto& [name, text] :
       {std::pair{"11", "5 1500000000 2\n"}, std::pair{"12", "7 250000000 1\n"}, std::pair{"14", "7 9000000000 1\n"}}) {
    fs::create_directories(tasks / name);
    write_file_atomically(tasks / name / "schedstat", text);
  }
  EXPECT_DOUBLE_EQ(cpu::waited_seconds({11, 12, 13}, root.path), 1.75) << "13 has ended, 14 loads data";
}

}  // namespace method_choice_test
}  // namespace millrace
