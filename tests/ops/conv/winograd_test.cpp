// Winograd's filtering against sums in double, and its errors beside those of oneDNN's convolution.
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "cpu/choice/conv_candidates.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"
#include "cpu/winograd/rules.hpp"
#include "millrace/base/rng.hpp"
#include "ops/weighted_op_checks.hpp"
#include "reference/conv.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace winograd_test {

using namespace test;
using cpu::ConvMethod, cpu::ConvMethods;

struct Case {
  const char* name;
  std::int64_t images, height, width, in, out, pad_y, pad_x;
  bool bias = false;

  ConvSpec spec(DType dtype = DType::f32) const {
    ConvSpec s;
    s.dtype = dtype;
    s.src = {images, height, width, in};
    s.out_channels = out;
    s.window = {.kernel = {3, 3, 1}, .pad = {pad_y, pad_x, 0}};
    s.bias = bias;
    return s;
  }
};

// Odd sizes, whose last tiles are cut off, no padding and padding of the full convolution, channels that fill half a
// panel, more tiles than a block has, and blocks that all threads share.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"even_32_to_32", 2, 8, 8, 32, 32, 1, 1},
      {"odd_16_to_48_bias", 3, 9, 7, 16, 48, 1, 1, true},
      {"no_padding_48_to_16", 2, 11, 6, 48, 16, 0, 0},
      {"full_padding_uneven", 1, 5, 13, 16, 16, 2, 0, true},
      {"one_pixel", 5, 1, 1, 32, 16, 1, 1},
      {"many_tiles_64", 2, 21, 33, 64, 64, 1, 1},
      {"small_images_256_to_272", 33, 4, 4, 256, 272, 1, 1},
      {"many_blocks_16", 4, 40, 67, 16, 16, 1, 1},
  };
  return all;
}

bool has_kernels() { return cpu::winograd::supports(cases()[0].spec()); }

struct Results {
  Values dst, diff_src, diff_weight, diff_bias;
};

ConvMethods all_by(ConvMethod method) { return {method, method, method, true, ""}; }

struct Problem {
  ConvSpec s;
  Values x = random_values(s.src.count(), 1), w = random_values(s.weight().count(), 2),
         b = random_values(s.out_channels, 3), dy = random_values(s.dst().count(), 4),
         w0 = random_values(s.weight().count(), 5), b0 = random_values(s.out_channels, 6);

  // implementation: receives that of the op; may be null.
  Results by(ConvMethod method, GradMode mode, std::string* implementation = nullptr) {
    OpHarness h(cpu::make_conv(s, all_by(method)));
    if (implementation) *implementation = h.op().implementation();
    x = h.set_src(0, s.src, s.dtype, x);  // what it is rounded to
    w = h.set_weight(0, s.weight(), s.dtype, w);
    dy = h.set_diff_dst(s.dst(), s.dtype, dy);
    if (s.bias) b = h.set_weight(1, {s.out_channels}, DType::f32, b);
    h.want_dst(s.dst(), s.dtype);
    h.want_diff_src(0, s.src, s.dtype);
    w0 = h.want_diff_weight(0, s.weight(), mode, w0);
    if (s.bias) b0 = h.want_diff_weight(1, {s.out_channels}, mode, b0);
    h.repack();
    h.forward();
    h.backward();
    return {get(h.args.dst), get(h.args.diff_src[0]), get(h.args.diff_weight[0]),
            s.bias ? get(h.args.diff_weight[1]) : Values{}};
  }
  // Without w0 and b0.
  Results sums() const {
    const auto g = reference::conv_backward(s, x, w, dy);
    return {reference::conv_forward(s, x, w, s.bias ? b : Values{}), g.src, g.weight, s.bias ? g.bias : Values{}};
  }
  Results expected(Results r) const {
    add(r.diff_weight, w0);
    if (s.bias) add(r.diff_bias, b0);
    return r;
  }
  Results expected() const { return expected(sums()); }
};

// Of the largest magnitude. F(2x2) keeps the tolerances of conv_test.cpp. Sums are float32; results in bf16 are then
// rounded to 8 bits.
double tolerance(ConvMethod method) { return method == ConvMethod::winograd_2 ? 2e-6 : 4e-6; }
double tolerance(ConvMethod method, DType dtype) { return tolerance(method) + (dtype == DType::bf16 ? 0x1p-8 : 0); }

using Param = std::tuple<std::size_t, ConvMethod, GradMode, DType>;
class WinogradConv : public ::testing::TestWithParam<Param> {};

TEST_P(WinogradConv, ForwardAndGradientsMatch) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  const auto [index, method, mode, dtype] = GetParam();
  Problem problem{cases()[index].spec(dtype)};
  std::string with;
  const Results actual = problem.by(method, mode, &with);
  static std::map<std::pair<std::size_t, DType>, Results> known;  // all methods get the same numbers
  if (!known.contains({index, dtype})) known[{index, dtype}] = problem.sums();
  const Results expected = problem.expected(known[{index, dtype}]);
  EXPECT_EQ(with.find("emulated"), std::string::npos) << with;
  const char* name = method == ConvMethod::winograd_2 ? "winograd F(2x2)" : "winograd F(4x4)";
  for (const char* part : {"", "backward data ", "backward weights "})
    EXPECT_NE(with.find(std::string(part) + name), std::string::npos) << with;
  expect_close(actual.dst, expected.dst, tolerance(method, dtype), "dst by " + with);
  expect_close(actual.diff_src, expected.diff_src, tolerance(method, dtype), "diff_src by " + with);
  expect_close(actual.diff_weight, expected.diff_weight, 2 * tolerance(method), "diff_weight by " + with);
  expect_close(actual.diff_bias, expected.diff_bias, 5e-6, "diff_bias by " + with);
}

std::string name_of_case(const ::testing::TestParamInfo<Param>& info) {
  const auto [index, method, mode, dtype] = info.param;
  const char* form = method == ConvMethod::winograd_2 ? "2x2" : method == ConvMethod::winograd_4 ? "4x4" : "4x4_slices";
  return fmt::format("{}_{}_{}_{}", cases()[index].name, form, mode == GradMode::add ? "add" : "write", name_of(dtype));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, WinogradConv,
    ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                       ::testing::Values(ConvMethod::winograd_2, ConvMethod::winograd_4, ConvMethod::winograd_4_slices),
                       ::testing::Values(GradMode::write, GradMode::add), ::testing::Values(DType::f32, DType::bf16)),
    name_of_case);

// Root of the mean squared error, of the largest magnitude.
double error(const Values& actual, const Values& expected) {
  double sum = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    sum += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    scale = std::max(scale, std::abs(expected[i]));
  }
  return std::sqrt(sum / double(expected.size())) / scale;
}

// The layers of a ResNet-18 for small images, with fewer images. Few images are the hard case for the gradients of the
// weights: the direct sums are short, and the errors of the transforms do not average out. With AVX2, the direct
// gradient of the source has a third of the error that it has with AVX-512.
TEST(WinogradErrors, AreAFewTimesThoseOfTheDirectConvolution) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  const Case layers[] = {{"64", 1, 32, 32, 64, 64, 1, 1},
                         {"128", 1, 16, 16, 128, 128, 1, 1},
                         {"256", 1, 8, 8, 256, 256, 1, 1},
                         {"512", 1, 4, 4, 512, 512, 1, 1}};
  for (const Case& layer : layers) {
    Problem problem{layer.spec()};
    const Results direct = problem.by(ConvMethod::direct, GradMode::write), expected = problem.expected();
    for (const ConvMethod method : {ConvMethod::winograd_2, ConvMethod::winograd_4, ConvMethod::winograd_4_slices}) {
      const Results actual = problem.by(method, GradMode::write);
      const std::string what = fmt::format("{} channels, {}", layer.name, cpu::name_of(method));
      const double most = method == ConvMethod::winograd_2 ? 4 : 12;
      const auto compare = [&](const char* part, Values Results::*of) {
        const double mine = error(actual.*of, expected.*of), theirs = error(direct.*of, expected.*of);
        fmt::print("{}, {}: {:.1e}, direct {:.1e}\n", what, part, mine, theirs);
        EXPECT_LE(mine, most * theirs) << what << ", " << part;
      };
      compare("forward", &Results::dst);
      compare("backward data", &Results::diff_src);
      compare("backward weights", &Results::diff_weight);
    }
  }
}

void expect_equal_bits(const Results& a, const Results& b) {
  EXPECT_EQ(a.dst, b.dst);
  EXPECT_EQ(a.diff_src, b.diff_src);
  EXPECT_EQ(a.diff_weight, b.diff_weight);
}

// The upper left of 4x4 results is that of the transformed tile if the rest of the tile is 0.
TEST(WinogradOp, RoundsToBf16LikeASingleNumber) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  std::vector<float> values{65280.f, 3.4e38f, std::numeric_limits<float>::infinity(), std::nanf("1"), 0.f};
  for (std::uint32_t i = 0; values.size() < 4096; ++i) {
    const std::uint32_t bits = philox(8, 0, i).v[0];
    for (const std::uint32_t v : {bits, (bits & 0xffff0000u) | 0x8000u})      // and ties
      if ((v & 0x7f800000u) != 0) values.push_back(std::bit_cast<float>(v));  // the CPU may take denormals for 0
  }
  alignas(64) float tile[36 * 16] = {};
  bf16 results[16][16];
  void* pixels[16];
  for (int i = 0; i < 16; ++i) pixels[i] = results[i];
  for (std::size_t first = 0; first + 16 <= values.size(); first += 16) {
    std::copy_n(&values[first], 16, tile);
    cpu::winograd::transforms(4, DType::bf16).output(tile, 16, nullptr, 1, pixels);
    for (std::size_t c = 0; c < 16; ++c)
      EXPECT_EQ(results[0][c].bits, bf16(values[first + c]).bits) << values[first + c];
  }
}

TEST(WinogradOp, TwoRunsAreBitwiseEqual) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  for (const std::size_t index : {5, 6}) {
    Problem problem{cases()[index].spec()};
    const Results first = problem.by(ConvMethod::winograd_4, GradMode::write);
    expect_equal_bits(first, problem.by(ConvMethod::winograd_4, GradMode::write));
  }
}

// The rule for slices does not depend on the number of threads, and neither may the results.
TEST(WinogradOp, SlicesHaveTheSameBitsWithAnyNumberOfThreads) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  const int before = cpu::thread_count();
  Problem problem{cases()[5].spec()};
  std::optional<Results> first;
  for (const int threads : {1, 3, 40}) {
    cpu::set_thread_count(threads);
    const Results now = problem.by(ConvMethod::winograd_4_slices, GradMode::write);
    if (!first) first = now;
    EXPECT_EQ(now.dst, first->dst) << threads;
    EXPECT_EQ(now.diff_src, first->diff_src) << threads;
  }
  cpu::set_thread_count(before);
}

TEST(WinogradOp, OtherConvolutionsAreComputedDirectly) {
  ConvSpec strided = cases()[0].spec(), narrow = cases()[0].spec(), wide = cases()[0].spec();
  strided.window.stride = {2, 2, 1};
  narrow.src[-1] = 24;
  wide.window.kernel = {5, 5, 1};
  for (const ConvSpec& s : {strided, narrow, wide}) {
    EXPECT_FALSE(cpu::winograd::supports(s));
    const std::string text = cpu::make_conv(s, all_by(ConvMethod::winograd_4))->implementation();
    EXPECT_EQ(text.find("winograd"), std::string::npos) << text;
  }
}

TEST(WinogradOp, IsChosenByRuleUnlessItIsSwitchedOff) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  const ConvSpec s = Case{"", 64, 16, 16, 128, 128, 1, 1}.spec();
  ConvMethods off;
  off.winograd = false;
  EXPECT_NE(cpu::make_conv(s)->implementation().find("winograd F(4x4)"), std::string::npos);
  EXPECT_EQ(cpu::make_conv(s, off)->implementation().find("winograd"), std::string::npos);
  // Most of a tile is outside of an image of 3x3 pixels.
  for (const auto& [side, expected] : {std::pair{4, true}, std::pair{3, false}, std::pair{6, true}})
    EXPECT_EQ(cpu::winograd::is_faster(Case{"", 64, side, side, 64, 64, 1, 1}.spec(), cpu::ConvPart::Of::forward),
              expected)
        << side;
}

// Without any instructions for bf16, a convolution that is filtered in all its parts reads and writes bf16 as it is.
TEST(WinogradOp, IsNotEmulatedInBf16IfAllPartsAreFiltered) {
  if (!has_kernels()) GTEST_SKIP() << "this processor has no kernels for it";
  const ConvSpec trained = cases()[0].spec(DType::bf16);
  ConvSpec inferred = trained, first = trained;
  inferred.mode = Mode::infer;
  first.need_diff_src = false;
  Problem problem{trained};
  const Results expected = problem.by(ConvMethod::winograd_4, GradMode::write);
  for (const ConvSpec& s : {inferred, first}) {
    OpHarness h(cpu::make_conv(s, all_by(ConvMethod::winograd_4)));
    EXPECT_EQ(h.op().implementation().find("emulated"), std::string::npos) << h.op().implementation();
    h.set_src(0, s.src, DType::bf16, problem.x);
    h.set_weight(0, s.weight(), DType::bf16, problem.w);
    h.want_dst(s.dst(), DType::bf16);
    if (s.mode == Mode::train) {
      h.set_diff_dst(s.dst(), DType::bf16, problem.dy);
      h.want_diff_weight(0, s.weight(), GradMode::write, problem.w0);
    }
    h.repack();
    h.forward();
    EXPECT_EQ(get(h.args.dst), expected.dst);
    if (s.mode == Mode::infer) continue;
    h.backward();
    EXPECT_EQ(get(h.args.diff_weight[0]), expected.diff_weight);
  }
  if (cpu::onednn::has_bf16()) return;
  for (const ConvMethods& mixed :
       {ConvMethods{.winograd = false, .note = ""},
        ConvMethods{ConvMethod::winograd_4, ConvMethod::winograd_4, ConvMethod::direct, true, ""}})
    EXPECT_NE(cpu::make_conv(trained, mixed)->implementation().find("bf16 emulated"), std::string::npos);
}

}  // namespace winograd_test
}  // namespace millrace
