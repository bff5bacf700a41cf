// Layers that add to the gradient of their source instead of writing it (accumulates_diff_src).
#include <fmt/core.h>

#include "ops/weighted_op_checks.hpp"
#include "reference/conv.hpp"
#include "reference/linear.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace accumulation_test {

using namespace test;

// The sum is rounded once, like the results in conv_test.cpp and linear_test.cpp. The separate addition rounds the
// layer's own gradient before it, which adds half a unit in the last place.
constexpr Tolerance exact{5e-6, 8e-3, 1e-3}, separate{5e-6, 1.2e-2, 1.5e-3};

struct Gradients {
  Values source;  // after the layer
  std::string implementation;
};

// The gradient of the source after the layer's backward pass, where `initial` was before.
template <class Layer>
Gradients backward(const Layer& s, const Values& initial) {
  OpHarness h(s);
  h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
  h.set_weight(0, s.weight(), s.dtype, random_values(s.weight().count(), 2, 0.3));
  h.set_diff_dst(s.dst(), s.dtype, random_values(s.dst().count(), 4));
  h.want_dst(s.dst(), s.dtype);
  h.want_diff_weight(0, s.weight(), GradMode::write);
  h.want_diff_src(0, s.src, s.dtype);
  if (s.accumulates_diff_src) put(h.args.diff_src[0], initial);
  h.repack();
  h.forward();
  h.backward();
  return {get(h.args.diff_src[0]), h.op().implementation()};
}

Values reference_gradient(const ConvSpec& s) {
  const auto value = [&](const Shape& shape, int seed, double scale) {
    return rounded(random_values(shape.count(), seed, scale), s.dtype);
  };
  return reference::conv_backward(s, value(s.src, 1, 1), value(s.weight(), 2, 0.3), value(s.dst(), 4, 1)).src;
}
Values reference_gradient(const LinearSpec& s) {
  const auto value = [&](const Shape& shape, int seed, double scale) {
    return rounded(random_values(shape.count(), seed, scale), s.dtype);
  };
  return reference::linear_backward(s, value(s.src, 1, 1), value(s.weight(), 2, 0.3), {}, value(s.dst(), 4, 1)).src;
}

bool computes_like_a_gpu(const std::string& implementation) {
  for (const char* library : {"cudnn", "cublasLt", "depthwise kernel", "loops"})  // loops: support/host/cublas.hpp
    if (implementation.find(library) != std::string::npos) return true;
  return false;
}

// The backends of a GPU support every case here, and those of the CPU none.
template <class Layer>
void expect_accumulation(Layer s) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    s.dtype = dtype;
    s.accumulates_diff_src = false;
    const Values initial = rounded(random_values(s.src.count(), 7, 3), dtype);
    const Gradients plain = backward(s, {});
    s.accumulates_diff_src = true;
    const std::string why = backend().why_not_fused(s), with = " by " + plain.implementation;
    EXPECT_EQ(why.empty(), computes_like_a_gpu(plain.implementation)) << why << with;
    if (!why.empty()) {
      EXPECT_THROW(backend().make(s), Error) << why;
      continue;
    }
    Values expected = reference_gradient(s), sum = plain.source;
    add(expected, initial);
    add(sum, initial);
    const Gradients found = backward(s, initial);
    expect_close(found.source, expected, exact.of(dtype), "the gradient" + with);
    expect_close(found.source, rounded(sum, dtype), separate.of(dtype), "the gradient and a separate addition" + with);
    EXPECT_EQ(backward(s, initial).source, found.source) << "a second run" << with;
    EXPECT_NE(found.implementation.find("adding to the gradient"), std::string::npos) << found.implementation;
  }
}

ConvSpec conv(Shape src, std::int64_t out_channels, Window window, std::int64_t groups = 1) {
  ConvSpec s;
  s.src = src;
  s.out_channels = out_channels;
  s.window = window;
  s.groups = groups;
  return s;
}

TEST(ConvAccumulation, MatchesTheReferenceAndASeparateAddition) {
  expect_accumulation(conv({2, 8, 7, 32}, 16, {}));
  expect_accumulation(conv({2, 8, 8, 16}, 32, {.stride = {2, 2, 1}}));
  expect_accumulation(conv({3, 9, 7, 16}, 24, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}));
  expect_accumulation(conv({1, 15, 12, 16}, 24, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}));
  expect_accumulation(conv({2, 10, 9, 12}, 18, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 3));
  expect_accumulation(conv({2, 10, 9, 12}, 12, {.kernel = {5, 5, 1}, .pad = {2, 2, 0}}, 12));
  expect_accumulation(conv({2, 10, 9, 12}, 12, {.kernel = {3, 3, 1}, .stride = {2, 1, 1}, .pad = {1, 0, 0}}, 12));
  expect_accumulation(conv({3, 41, 6}, 10, {.rank = 1, .kernel = {7, 1, 1}, .stride = {2, 1, 1}, .pad = {3, 0, 0}}));
}

TEST(LinearAccumulation, MatchesTheReferenceAndASeparateAddition) {
  for (const auto& [src, out] : {std::pair{Shape{32, 64}, 40}, {Shape{5, 597}, 43}, {Shape{3, 4, 5, 6}, 8}}) {
    LinearSpec s;
    s.src = src;
    s.out_features = out;
    s.bias = false;
    expect_accumulation(s);
  }
}

// The gradient that a fused layer computes belongs to another layer, so nothing can be added to it.
TEST(ConvAccumulation, ExcludesTheSumsOfANorm) {
  ConvSpec s = conv({2, 9, 7, 8}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}});
  s.accumulates_diff_src = s.produces_diff_sums = true;
  EXPECT_THROW(backend().make(s), Error);
}
TEST(LinearAccumulation, ExcludesTheGradientOfAnActivation) {
  LinearSpec s;
  s.src = {8, 16};
  s.out_features = 8;
  s.accumulates_diff_src = true;
  s.produces_diff_pre = Activation::relu;
  EXPECT_THROW(backend().make(s), Error);
}

}  // namespace accumulation_test
}  // namespace millrace
