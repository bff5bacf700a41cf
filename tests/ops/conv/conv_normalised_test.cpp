// Convolutions at fusion level 3, which normalise their source while they read it.
#include <fmt/core.h>

#include "reference/conv.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace conv_normalised_test {

using namespace test;

struct Case {
  const char* name;
  ConvSpec spec;
};

ConvSpec conv(Shape src, std::int64_t out_channels, Window window) {
  ConvSpec s;
  s.src = src;
  s.out_channels = out_channels;
  s.window = window;
  s.produces_sums = s.produces_diff_sums = s.normalises_src = true;
  return s;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"8_to_16", conv({3, 9, 7, 8}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"pointwise_16_to_40", conv({2, 5, 6, 16}, 40, {})},
      {"stride_2", conv({2, 15, 12, 24}, 32, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}})},
      {"dilation_2", conv({2, 9, 8, 16}, 8, {.kernel = {3, 3, 1}, .pad = {2, 2, 0}, .dilation = {2, 2, 1}})},
      {"one_image", conv({1, 6, 5, 32}, 8, {.kernel = {5, 5, 1}, .pad = {2, 2, 0}})},
      {"3_to_5", conv({2, 13, 11, 3}, 5, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"one_dimension", conv({3, 41, 16}, 8, {.rank = 1, .kernel = {7, 1, 1}, .stride = {2, 1, 1}, .pad = {3, 0, 0}})},
  };
  return all;
}

// As in conv_sums_test.cpp. The normalised source is rounded to dtype before it is multiplied.
constexpr Tolerance activations{3e-6, 1.2e-2, 1.5e-3}, sums{5e-6, 4e-3, 5e-4};

// A norm with arbitrary moments, whose source has no value near the threshold of the ReLU. So rounding does not decide
// which gradients pass.
struct Norm {
  Values gamma, beta, moments, affine, x, y;
  explicit Norm(OpHarness& h, const ConvSpec& s) {
    const std::int64_t channels = s.src[-1];
    const std::size_t n = std::size_t(channels);
    gamma = h.set_weight(2, {channels}, DType::f32, random_values(channels, 3));
    beta = h.set_weight(3, {channels}, DType::f32, random_values(channels, 4));
    for (std::size_t c = 0; c < n; ++c) gamma[c] += gamma[c] < 0 ? -0.5 : 0.5;
    put(h.args.weight[2], gamma);
    gamma = get(h.args.weight[2]);
    moments = random_values(2 * channels, 6);
    for (std::size_t c = 0; c < n; ++c) moments[n + c] = 1.5 + 0.5 * moments[n + c];
    h.want_sums(h.args.moments, channels);
    put(h.args.moments, moments);
    moments = get(h.args.moments);
    Values exact(2 * n);
    for (std::size_t c = 0; c < n; ++c) {
      exact[c] = gamma[c] * moments[n + c];
      exact[n + c] = beta[c] - moments[c] * exact[c];
    }
    h.args.affine = h.set_src({2, channels}, s.dtype, exact);
    affine = get(h.args.affine);
    x = random_values(s.src.count(), 1, 2);
    for (std::size_t i = 0; i < x.size(); ++i)
      while (std::abs(exact[i % n] * x[i] + exact[n + i % n]) < 0.05) x[i] += 0.1;
    x = h.set_src(0, s.src, s.dtype, x);
    h.args.norm_src = h.args.src[0];
    for (std::size_t i = 0; i < x.size(); ++i) y.push_back(std::max(0.0, affine[i % n] * x[i] + affine[n + i % n]));
  }
};

class ConvNormalisedAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode>> {
 protected:
  static bool is_supported(const ConvSpec& s) {
    const std::string why = backend().why_not_fused(s);
    if (why.empty()) return true;
    EXPECT_THROW(backend().make(s), Error) << why;
    return false;
  }
};

TEST_P(ConvNormalisedAgainstReference, ResultSumsAndGradientsMatch) {
  const auto [index, dtype, mode] = GetParam();
  ConvSpec s = cases()[index].spec;
  s.dtype = dtype;
  if (!is_supported(s)) return;
  OpHarness h(s);
  const Norm norm(h, s);
  const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
  const auto dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 5));
  h.want_dst(s.dst(), dtype);
  h.want_sums(h.args.sums, s.out_channels);
  h.want_diff_src(0, s.src, dtype);
  h.want_sums(h.args.diff_sums, s.src[-1]);
  const auto before = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 7));
  h.repack();
  h.forward();
  h.backward();

  const std::string with = " by " + h.op().implementation();
  const Values y = reference::conv_forward(s, norm.y, w, {});
  expect_close(get(h.args.dst), y, activations.of(dtype), "dst" + with);
  const std::size_t k = std::size_t(s.out_channels), n = std::size_t(s.src[-1]);
  Values sum(k, 0.0), size(k, 0.0);
  for (std::size_t i = 0; i < y.size(); ++i) {
    sum[i % k] += y[i];
    size[i % k] += std::abs(y[i]);
  }
  for (std::size_t c = 0; c < k; ++c)
    EXPECT_NEAR(get(h.args.sums)[c], sum[c], 2 * sums.of(dtype) * size[c]) << c << with;

  auto g = reference::conv_backward(s, norm.y, w, dy);
  for (std::size_t i = 0; i < before.size(); ++i) g.weight[i] += before[i];
  expect_close(get(h.args.diff_weight[0]), g.weight, activations.of(dtype), "diff_weight" + with);
  Values expected(2 * n, 0.0), magnitude(2 * n, 0.0);
  for (std::size_t i = 0; i < g.src.size(); ++i) {
    if (norm.y[i] <= 0) g.src[i] = 0;
    const double terms[2] = {g.src[i] * (norm.x[i] - norm.moments[i % n]) * norm.moments[n + i % n], g.src[i]};
    for (const std::size_t t : {0, 1}) {
      expected[t * n + i % n] += terms[t];
      magnitude[t * n + i % n] += std::abs(terms[t]);
    }
  }
  expect_close(get(h.args.diff_src[0]), g.src, activations.of(dtype), "diff_src" + with);
  const Values found = get(h.args.diff_sums);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], sums.of(dtype) * magnitude[i]) << i << with;
}

INSTANTIATE_TEST_SUITE_P(ConvNormalised, ConvNormalisedAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add)),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "");
                         });

// Every pixel becomes 1, so that a position of the result counts the pixels of its window. If padding were added before
// the norm, it would become 1 too, and all positions would be equal.
TEST(ConvNormalised, PaddingIsZeroAfterTheNorm) {
  ConvSpec s = conv({2, 4, 5, 8}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}});
  s.dtype = DType::f16;
  ASSERT_EQ(backend().why_not_fused(s), "");
  OpHarness h(s);
  const std::int64_t channels = s.src[-1], pixels = s.src.count();
  h.set_src(0, s.src, s.dtype, random_values(pixels, 1));
  h.args.norm_src = h.args.src[0];
  Values affine(std::size_t(2 * channels), 0.0);
  std::fill(affine.begin() + channels, affine.end(), 1.0);
  h.args.affine = h.set_src({2, channels}, s.dtype, affine);
  h.set_weight(0, s.weight(), s.dtype, Values(std::size_t(s.weight().count()), 1.0));
  for (const int i : {2, 3}) h.set_weight(i, {channels}, DType::f32, Values(std::size_t(channels), double(i - 2)));
  h.want_sums(h.args.moments, channels);
  put(h.args.moments, Values(std::size_t(2 * channels), 1.0));
  h.set_diff_dst(s.dst(), s.dtype, Values(std::size_t(pixels), 1.0));
  h.want_dst(s.dst(), s.dtype);
  h.want_sums(h.args.sums, channels);
  h.want_diff_src(0, s.src, s.dtype);
  h.want_sums(h.args.diff_sums, channels);
  h.want_diff_weight(0, s.weight(), GradMode::write);
  h.repack();
  h.forward();
  h.backward();
  const Values y = get(h.args.dst), dw = get(h.args.diff_weight[0]);
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::int64_t row = i / channels / 5 % 4, column = i / channels % 5;
    const double rows = row % 3 == 0 ? 2 : 3, columns = column % 4 == 0 ? 2 : 3;
    EXPECT_EQ(y[std::size_t(i)], double(channels) * rows * columns) << row << " " << column;
  }
  // A tap of the weight meets all pixels but those of the border that it looks beyond.
  for (std::int64_t i = 0; i < s.weight().count(); ++i) {
    const std::int64_t tap = i / channels % 9;
    const double rows = tap / 3 == 1 ? 4 : 3, columns = tap % 3 == 1 ? 5 : 4;
    EXPECT_EQ(dw[std::size_t(i)], double(s.src[0]) * rows * columns) << tap;
  }
}

// A typical layer of a ResNet, which every backend must support.
TEST(ConvNormalised, IsSupportedInF16For64Channels) {
  ConvSpec s = conv({8, 14, 14, 64}, 64, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}});
  s.dtype = DType::f16;
  EXPECT_EQ(backend().why_not_fused(s), "");
  s.produces_diff_sums = false;
  EXPECT_THROW(backend().make(s), Error) << "the norm's backward pass would need its result";
}

}  // namespace conv_normalised_test
}  // namespace millrace
