// Pairs of linear layers at fusion level 2: the second layer also computes the gradient before the activation of the
// first layer, and the gradient of its bias.
#include <fmt/core.h>

#include "ops/weighted_op_checks.hpp"
#include "reference/linear.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace linear_pair_test {

using namespace test;

struct Case {
  const char* name;
  Shape src;
  std::int64_t between, out;
  Activation activation;
  bool bias = true;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"relu_64", {32, 24}, 64, 16, Activation::relu},
      {"relu_odd", {7, 43}, 19, 11, Activation::relu},
      {"relu_no_bias_batch_1", {1, 16}, 136, 8, Activation::relu, false},
      {"gelu_tanh_64", {32, 24}, 64, 16, Activation::gelu_tanh},
      {"gelu_tanh_40_of_597", {5, 597}, 40, 13, Activation::gelu_tanh},
      {"gelu_tanh_no_bias", {9, 45}, 16, 27, Activation::gelu_tanh, false},
      {"gelu_tanh_odd", {9, 45}, 19, 8, Activation::gelu_tanh},
      {"gelu", {8, 16}, 16, 8, Activation::gelu},
      {"tanh", {8, 16}, 16, 8, Activation::tanh},
  };
  return all;
}

struct Pair {
  LinearSpec first, second;
};

Pair pair(const Case& c, DType dtype, bool bias) {
  Pair p;
  p.first.src = c.src;
  p.first.out_features = c.between;
  p.first.activation = c.activation;
  p.first.bias = c.bias;
  p.second.src = {c.src[0], c.between};
  p.second.out_features = c.out;
  p.first.dtype = p.second.dtype = dtype;
  p.first.consumes_diff_pre = true;
  p.second.produces_diff_pre = c.activation;
  p.first.consumes_diff_bias = p.second.produces_diff_bias = bias;
  return p;
}

// Whether the backend supports the fusion. If not, expects that make() rejects the Spec.
bool is_supported(const LinearSpec& s) {
  const std::string why = backend().why_not_fused(s);
  if (why.empty()) return true;
  EXPECT_THROW(backend().make(s), Error) << why;
  return false;
}

// Larger than in linear_test.cpp, because the second layer sums values that the first layer rounded. The gradient of
// the bias is also rounded to the dtype.
constexpr Tolerance forward{5e-6, 1e-2, 1.5e-3}, backward{2e-5, 2e-2, 3e-3};

class LinearPair : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode, bool>> {};

TEST_P(LinearPair, GradientsOfBothLayersMatchReference) {
  const auto [index, dtype, mode, bias] = GetParam();
  const Case& c = cases()[index];
  if (bias && !c.bias) return;  // there is no gradient of a bias
  const auto [one, two] = pair(c, dtype, bias);
  if (!is_supported(one) || !is_supported(two)) return;
  OpHarness first(one), second(two);
  const auto x = first.set_src(0, one.src, dtype, random_values(one.src.count(), 1));
  const auto w1 = first.set_weight(0, one.weight(), dtype, random_values(one.weight().count(), 2, 0.3));
  const auto b1 =
      c.bias ? first.set_weight(1, {c.between}, DType::f32, rounded(random_values(c.between, 3), dtype)) : Values{};
  first.want_dst(one.dst(), dtype);
  first.want_diff_src(0, one.src, dtype);
  first.repack();
  first.forward();
  second.set_src(0, two.src, dtype, get(first.args.dst));
  const auto w2 = second.set_weight(0, two.weight(), dtype, random_values(two.weight().count(), 4, 0.3));
  const auto b2 = second.set_weight(1, {c.out}, DType::f32, rounded(random_values(c.out, 5), dtype));
  const auto dy = second.set_diff_dst(two.dst(), dtype, random_values(two.dst().count(), 6));
  second.want_dst(two.dst(), dtype);
  second.want_diff_src(0, two.src, dtype);
  const auto w20 = second.want_diff_weight(0, two.weight(), mode, random_values(two.weight().count(), 7));
  const auto b20 = second.want_diff_weight(1, {c.out}, mode, random_values(c.out, 8));
  second.args.src_saved = first.args.saved;
  if (bias)
    second.args.src_diff_bias = first.args.diff_bias = second.set_src({c.between}, dtype, Values(c.between, NAN));
  second.repack();
  second.forward();
  second.backward();
  first.set_diff_dst(one.dst(), dtype, get(second.args.diff_src[0]));
  const auto w10 = first.want_diff_weight(0, one.weight(), mode, random_values(one.weight().count(), 9));
  const auto b10 = c.bias ? first.want_diff_weight(1, {c.between}, mode, random_values(c.between, 10)) : Values{};
  const Values h = reference::linear_forward(one, x, w1, b1);
  auto g2 = reference::linear_backward(two, h, w2, b2, dy);
  auto g1 = reference::linear_backward(one, x, w1, b1, g2.src);
  if (bias) {  // the second layer must compute it correctly, and the first layer must use the value that is passed in
    expect_close(get(first.args.diff_bias), g1.bias, backward.of(dtype), "shared by " + second.op().implementation());
    put(first.args.diff_bias, random_values(c.between, 11));
    g1.bias = get(first.args.diff_bias);
  }
  first.backward();

  add(g1.weight, w10);
  add(g1.bias, b10);
  add(g2.weight, w20);
  add(g2.bias, b20);
  const std::string by = fmt::format(" by {} and {}", first.op().implementation(), second.op().implementation());
  expect_close(get(first.args.dst), h, forward.of(dtype), "between" + by);
  expect_close(get(second.args.dst), reference::linear_forward(two, h, w2, b2), forward.of(dtype), "dst" + by);
  expect_close(get(first.args.diff_src[0]), g1.src, backward.of(dtype), "diff_src" + by);
  expect_close(get(first.args.diff_weight[0]), g1.weight, backward.of(dtype), "diff_weight of the first layer" + by);
  expect_close(get(second.args.diff_weight[0]), g2.weight, backward.of(dtype), "diff_weight of the second layer" + by);
  if (c.bias)
    expect_close(get(first.args.diff_weight[1]), g1.bias, backward.of(dtype), "diff_bias of the first layer" + by);
  expect_close(get(second.args.diff_weight[1]), g2.bias, backward.of(dtype), "diff_bias of the second layer" + by);
}

INSTANTIATE_TEST_SUITE_P(Linear, LinearPair,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add), ::testing::Bool()),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write",
                                              std::get<3>(info.param) ? "_with_bias" : "");
                         });

// No backend supports these cases.
TEST(LinearPair, OtherActivationsAndGeluTanhOfOddWidthAreRejected) {
  for (const std::size_t index : {6, 7, 8}) EXPECT_FALSE(is_supported(pair(cases()[index], DType::f16, true).second));
}

}  // namespace linear_pair_test
}  // namespace millrace
