#include <fmt/core.h>

#include "ops/weighted_op_checks.hpp"
#include "reference/conv.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace transposed_conv_test {

using namespace test;

struct Case {
  const char* name;
  TransposedConvSpec spec;
};

TransposedConvSpec transposed(Shape src, std::int64_t out_channels, Window window, bool bias = false,
                              std::int64_t output_pad = 0, std::int64_t groups = 1) {
  return {src, out_channels, groups, window, output_pad, bias};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"doubling", transposed({2, 5, 6, 16}, 8, {.kernel = {2, 2, 1}, .stride = {2, 2, 1}}, true)},
      {"same_extent", transposed({2, 7, 5, 8}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, true)},
      {"doubling_with_overlap",
       transposed({1, 4, 5, 12}, 7, {.kernel = {4, 4, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}, true)},
      {"output_padding",
       transposed({2, 4, 3, 5}, 3, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}, true, 1)},
      {"gaps", transposed({1, 3, 4, 3}, 4, {.kernel = {1, 1, 1}, .stride = {2, 2, 1}}, true, 1)},
      {"dilation", transposed({2, 5, 4, 8}, 8, {.kernel = {3, 2, 1}, .pad = {1, 0, 0}, .dilation = {2, 3, 1}})},
      {"groups",
       transposed({2, 5, 4, 12}, 18, {.kernel = {3, 3, 1}, .stride = {2, 1, 1}, .pad = {1, 1, 0}}, true, 0, 3)},
      {"depthwise",
       transposed({2, 5, 4, 24}, 24, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}, true, 1, 24)},
      {"one_dimension",
       transposed({3, 11, 6}, 10, {.rank = 1, .kernel = {5, 1, 1}, .stride = {3, 1, 1}, .pad = {1, 0, 0}}, true, 2)},
      {"three_dimensions",
       transposed({2, 2, 3, 2, 16}, 8, {.rank = 3, .kernel = {2, 2, 2}, .stride = {2, 2, 2}}, true)},
      {"three_dimensions_uneven",
       transposed({1, 3, 2, 3, 4}, 5, {.rank = 3, .kernel = {3, 2, 3}, .stride = {1, 2, 2}, .pad = {1, 0, 1}})},
      {"many_small_images", transposed({66, 4, 4, 64}, 64, {.kernel = {3, 1, 1}, .pad = {1, 0, 0}}, true)},
  };
  return all;
}

// As those of the convolution; the bias is added to the rounded result.
constexpr Tolerance activations{2e-6, 1.2e-2, 1.5e-3}, parameters{5e-6, 5e-6, 5e-6},
    narrow_parameters{5e-6, 4e-3, 5e-4};

class TransposedConv : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode>> {};

TEST_P(TransposedConv, ForwardAndGradientsMatchReference) {
  const auto [index, dtype, mode] = GetParam();
  TransposedConvSpec s = cases()[index].spec;
  s.dtype = dtype;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
  const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
  const Shape channels{s.out_channels};
  const auto b = s.bias ? h.set_weight(1, channels, DType::f32, random_values(s.out_channels, 3)) : Values{};
  const auto dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 4));
  const auto w0 = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 5));
  const auto b0 = s.bias ? h.want_diff_weight(1, channels, mode, random_values(s.out_channels, 6)) : Values{};
  h.want_dst(s.dst(), dtype);
  h.want_diff_src(0, s.src, dtype);
  h.repack();
  h.forward();
  h.backward();

  auto g = reference::transposed_conv_backward(s, x, w, dy);
  add(g.weight, w0);
  add(g.bias, b0);
  const std::string with = fmt::format(" by {}", h.op().implementation());
  expect_close(get(h.args.dst), reference::transposed_conv_forward(s, x, w, b), activations.of(dtype), "dst" + with);
  expect_close(get(h.args.diff_src[0]), g.src, activations.of(dtype), "diff_src" + with);
  const bool narrow = h.op().implementation().rfind("cudnn", 0) == 0;
  expect_close(get(h.args.diff_weight[0]), g.weight, (narrow ? narrow_parameters : parameters).of(dtype),
               "diff_weight" + with);
  if (s.bias) expect_close(get(h.args.diff_weight[1]), g.bias, parameters.of(dtype), "diff_bias" + with);
}

INSTANTIATE_TEST_SUITE_P(Cases, TransposedConv,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add)),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write");
                         });

TEST(TransposedConvOp, SpreadsTheKernelAtEachElement) {
  const TransposedConvSpec s = transposed({1, 2, 1}, 1, {.rank = 1, .kernel = {3, 1, 1}, .stride = {2, 1, 1}}, true, 1);
  ASSERT_EQ(s.dst(), (Shape{1, 6, 1}));
  OpHarness h(s);
  h.set_src(0, s.src, s.dtype, {1, 2});
  h.set_weight(0, s.weight(), s.dtype, {1, 10, 100});
  h.set_weight(1, {1}, DType::f32, {1000});
  h.want_dst(s.dst(), s.dtype);
  h.repack();
  h.forward();
  EXPECT_EQ(get(h.args.dst), (Values{1001, 1010, 1102, 1020, 1200, 1000}));
}

TEST(TransposedConvOp, InfersWithLittleMemoryAndSkipsWhatNobodyWants) {
  TransposedConvSpec s = cases()[0].spec;
  for (const Mode mode : {Mode::train, Mode::infer}) {
    s.mode = mode;
    OpHarness h(s);
    const auto x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
    const auto w = h.set_weight(0, s.weight(), s.dtype, random_values(s.weight().count(), 2));
    const auto b = h.set_weight(1, {s.out_channels}, DType::f32, random_values(s.out_channels, 3));
    const auto dy = h.set_diff_dst(s.dst(), s.dtype, random_values(s.dst().count(), 4));
    h.want_dst(s.dst(), s.dtype);
    h.repack();
    h.forward();
    expect_close(get(h.args.dst), reference::transposed_conv_forward(s, x, w, b), activations.f32, "dst");
    if (mode == Mode::infer) continue;
    h.backward();  // nothing is wanted
    h.want_diff_src(0, s.src, s.dtype);
    h.backward();
    expect_close(get(h.args.diff_src[0]), reference::transposed_conv_backward(s, x, w, dy).src, activations.f32, "src");
  }
}

TEST(TransposedConvOp, TwoRunsAreBitwiseEqual) { expect_same_bits_twice(cases()[2].spec, 7); }

TEST(TransposedConvReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {2, 3, 6, 7, 9}) {
    const TransposedConvSpec s = cases()[index].spec;
    const auto x = random_values(s.src.count(), 1), w = random_values(s.weight().count(), 2);
    const auto b = random_values(s.out_channels, 3), dy = random_values(s.dst().count(), 4);
    const auto g = reference::transposed_conv_backward(s, x, w, dy);
    const auto f = [&](const Values& of_src, const Values& of_weight) {
      return reference::transposed_conv_forward(s, of_src, of_weight, b);
    };
    expect_gradient([&](const Values& v) { return f(v, w); }, x, dy, g.src, "src");
    expect_gradient([&](const Values& v) { return f(x, v); }, w, dy, g.weight, "weight");
  }
}

TEST(TransposedConvSpec, HasPyTorchsShapesAndRejectsImpossibleOnes) {
  EXPECT_EQ(cases()[0].spec.dst(), (Shape{2, 10, 12, 8}));
  EXPECT_EQ(cases()[0].spec.weight(), (Shape{16, 2, 2, 8}));
  EXPECT_EQ(cases()[3].spec.dst(), (Shape{2, 8, 6, 3}));
  EXPECT_EQ(cases()[6].spec.weight(), (Shape{12, 3, 3, 6}));
  EXPECT_THROW(transposed({2, 4, 4, 6}, 8, {}, false, 0, 4).dst(), Error);                  // 4 groups of 6 channels
  EXPECT_THROW(transposed({2, 4, 6}, 8, {.kernel = {3, 3, 1}}).dst(), Error);               // one dimension, not two
  EXPECT_THROW(transposed({2, 4, 4, 6}, 8, {.kernel = {3, 3, 1}}, false, 1).dst(), Error);  // as much as the stride
  EXPECT_THROW(transposed({2, 1, 4, 6}, 8, {.kernel = {2, 2, 1}, .pad = {1, 0, 0}}).dst(), Error);  // no result
}

}  // namespace transposed_conv_test
}  // namespace millrace
