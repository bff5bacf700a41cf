#include "reference/linear.hpp"

#include <fmt/core.h>

#include "cpu/common/ops.hpp"
#include "cpu/onednn/onednn.hpp"
#include "ops/weighted_op_checks.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace linear_test {

using namespace test;

struct Case {
  const char* name;
  LinearSpec spec;
};

LinearSpec linear(Shape src, std::int64_t out, Activation activation = Activation::none, bool bias = true) {
  LinearSpec s;
  s.src = src;
  s.out_features = out;
  s.activation = activation;
  s.bias = bias;
  return s;
}

std::vector<Case> make_cases() {
  std::vector<Case> all{
      {"plain_597_to_43", linear({5, 597}, 43)},
      {"no_bias_batch_1", linear({1, 33}, 17, Activation::none, false)},
      {"relu_64_to_64", linear({32, 64}, 64, Activation::relu)},
      {"relu_odd", linear({7, 43}, 19, Activation::relu, false)},
      {"tanh_odd", linear({6, 31}, 10, Activation::tanh)},
      {"gelu_64_to_128", linear({16, 64}, 128, Activation::gelu)},
      {"gelu_tanh_odd", linear({9, 45}, 19, Activation::gelu_tanh)},
      {"gelu_tanh_63_to_40", linear({13, 63}, 40, Activation::gelu_tanh)},
      {"gelu_tanh_no_bias", linear({16, 24}, 64, Activation::gelu_tanh, false)},
      {"flattens_images", linear({3, 4, 5, 6}, 8, Activation::relu)},
      {"rows_of_a_power_of_two", linear({17, 256}, 24, Activation::relu)},
      {"one_output", linear({4, 16}, 1)},
      {"two_outputs_of_2048", linear({131, 2048}, 2)},
      {"seven_outputs_no_bias", linear({22, 301}, 7, Activation::none, false)},
      {"plain_200_rows", linear({200, 257}, 201)},  // by SplitMatmul, if the processor has AMX
      {"many_rows_with_copied_weights", linear({520, 128}, 48)},
      {"one_input", linear({4, 1}, 12, Activation::tanh)},
  };
  for (const auto& [kind, name, reads_src] : activations) all.push_back({name, linear({9, 45}, 27, kind)});
  return all;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = make_cases();
  return all;
}

// float32: sums of up to 600 products, and the polynomials of oneDNN for tanh and erf (errors of a few 1e-6). 16 bits:
// the result is rounded once (2^-9, 2^-12 of a value). The gradient before the activation is rounded too, and the
// slopes of tanh and gelu are computed from rounded values.
constexpr Tolerance forward{5e-6, 8e-3, 1e-3}, backward{1e-5, 1.6e-2, 2e-3};

class LinearAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode>> {};

TEST_P(LinearAgainstReference, ForwardAndGradientsMatch) {
  const auto [index, dtype, mode] = GetParam();
  LinearSpec s = cases()[index].spec;
  s.dtype = dtype;
  const std::int64_t out = s.out_features;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
  const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2, 0.3));
  const auto b = s.bias ? h.set_weight(1, {out}, DType::f32, rounded(random_values(out, 3), dtype)) : Values{};
  const auto dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 4));
  const auto w0 = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 5));
  const auto b0 = s.bias ? h.want_diff_weight(1, {out}, mode, random_values(out, 6)) : Values{};
  h.want_dst(s.dst(), dtype);
  h.want_diff_src(0, s.src, dtype);
  h.repack();
  h.forward();
  h.backward();

  auto g = reference::linear_backward(s, x, w, b, dy);
  add(g.weight, w0);
  add(g.bias, b0);
  const std::string with = fmt::format(" by {}", h.op().implementation());
  expect_close(get(h.args.dst), reference::linear_forward(s, x, w, b), forward.of(dtype), "dst" + with);
  expect_close(get(h.args.diff_src[0]), g.src, backward.of(dtype), "diff_src" + with);
  expect_close(get(h.args.diff_weight[0]), g.weight, backward.of(dtype), "diff_weight" + with);
  if (s.bias) expect_close(get(h.args.diff_weight[1]), g.bias, backward.of(dtype), "diff_bias" + with);
}

INSTANTIATE_TEST_SUITE_P(Linear, LinearAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add)),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write");
                         });

TEST(LinearReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {1, 4, 5, 7, 10}) {
    const LinearSpec s = cases()[index].spec;
    const auto x = random_values(s.src.count(), 1), w = random_values(s.weight().count(), 2, 0.3);
    const auto b = random_values(s.out_features, 3), dy = random_values(s.dst().count(), 4);
    const auto g = reference::linear_backward(s, x, w, b, dy);
    expect_gradient([&](const Values& v) { return reference::linear_forward(s, v, w, b); }, x, dy, g.src, "src");
    expect_gradient([&](const Values& v) { return reference::linear_forward(s, x, v, b); }, w, dy, g.weight, "weight");
    if (s.bias)
      expect_gradient([&](const Values& v) { return reference::linear_forward(s, x, w, v); }, b, dy, g.bias, "bias");
  }
}

TEST(LinearOp, InferenceMatchesReferenceAndSavesNothing) {
  for (const auto& [activation, name, reads_src] : activations) {
    LinearSpec s = linear({11, 52}, 21, activation);
    s.mode = Mode::infer;
    OpHarness h(s);
    EXPECT_EQ(h.op().memory_requirements().saved, 0u);
    const auto x = h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1));
    const auto w = h.set_weight(0, s.weight(), DType::f32, random_values(s.weight().count(), 2));
    const auto b = h.set_weight(1, {21}, DType::f32, random_values(21, 3));
    h.want_dst(s.dst(), DType::f32);
    h.repack();
    h.forward();
    expect_close(get(h.args.dst), reference::linear_forward(s, x, w, b), forward.f32, name);
  }
}

// As when a text is generated token by token.
TEST(LinearOp, InferenceOfOneRowMatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (LinearSpec s : {linear({1, 52}, 21, Activation::gelu), linear({1, 3, 700}, 2100, Activation::none, false),
                         linear({1, 5}, 2, Activation::relu)}) {
      s.mode = Mode::infer;
      s.dtype = dtype;
      OpHarness h(s);
      const auto x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
      const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
      Values b(std::size_t(s.out_features));
      if (s.bias) b = h.set_weight(1, {s.out_features}, DType::f32, random_values(s.out_features, 3));
      h.want_dst(s.dst(), dtype);
      h.repack();
      h.forward();
      expect_close(get(h.args.dst), reference::linear_forward(s, x, w, b), forward.of(dtype), s.src.str());
    }
}

TEST(LinearOp, TwoRunsAreBitwiseEqual) { expect_same_bits_twice(linear({64, 300}, 200, Activation::gelu), 200); }

// A copy takes longer than few rows gain by it.
TEST(LinearOp, CopiesWeightsInTrainingOnlyForManyRows) {
  if (!cpu::onednn::has_pairs()) GTEST_SKIP() << "for processors that multiply bf16 without AMX";
  const auto copied = [](std::int64_t rows, DType dtype) {
    LinearSpec s = linear({rows, 1024}, 1024);
    s.dtype = dtype;
    s.mode = Mode::train;
    s.need_diff_src = true;
    return cpu::make_linear(s)->memory_requirements().packed_weights;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(copied(128, dtype), 0u) << name_of(dtype);
    EXPECT_GT(copied(2048, dtype), 0u) << name_of(dtype);
  }
  EXPECT_EQ(copied(512, DType::bf16), 0u);
}

TEST(LinearOp, SkipsGradientsThatAreNotRequested) {
  const LinearSpec s = linear({4, 10}, 6, Activation::relu);
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1));
  h.set_weight(0, s.weight(), DType::f32, random_values(s.weight().count(), 2));
  h.set_weight(1, {6}, DType::f32, random_values(6, 3));
  h.set_diff_dst(s.dst(), DType::f32, random_values(s.dst().count(), 4));
  h.want_dst(s.dst(), DType::f32);
  h.repack();
  h.forward();
  h.backward();
}

}  // namespace linear_test
}  // namespace millrace
