// Convolutions at fusion level 2, which compute the sums of a batch norm in forward and in backward.
#include <fmt/core.h>

#include "reference/batch_norm.hpp"
#include "reference/conv.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace conv_sums_test {

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
  return s;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"8_to_16", conv({3, 9, 7, 8}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"pointwise_16_to_40", conv({2, 5, 6, 16}, 40, {})},
      {"stride_2", conv({2, 15, 12, 24}, 32, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}})},
      {"one_image", conv({1, 6, 5, 32}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"3_to_5", conv({2, 13, 11, 3}, 5, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"one_dimension", conv({3, 41, 6}, 10, {.rank = 1, .kernel = {7, 1, 1}, .stride = {2, 1, 1}, .pad = {3, 0, 0}})},
  };
  return all;
}

// Like the tolerances in conv_test.cpp. Sums are float32. 16-bit values may be summed before or after they are rounded,
// which changes each by up to 2^-8 (bf16) or 2^-11 (f16). The tolerance of a sum is relative to the sum of magnitudes.
constexpr Tolerance activations{2e-6, 8e-3, 1e-3}, sums{5e-6, 4e-3, 5e-4};

class ConvSumsAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {
 protected:
  // Whether the backend supports the fusion. If not, expects that make() rejects the Spec.
  static bool is_supported(const ConvSpec& s) {
    const std::string why = backend().why_not_fused(s);
    if (why.empty()) return true;
    EXPECT_THROW(backend().make(s), Error) << why;
    return false;
  }
};

TEST_P(ConvSumsAgainstReference, SumsOfTheResultMatch) {
  const auto [index, dtype] = GetParam();
  ConvSpec s = cases()[index].spec;
  s.dtype = dtype;
  s.produces_sums = true;
  if (!is_supported(s)) return;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
  const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
  h.want_dst(s.dst(), dtype);
  h.want_sums(h.args.sums, s.out_channels);
  h.repack();
  h.forward();
  const Values y = reference::conv_forward(s, x, w, {});
  const std::size_t n = std::size_t(s.out_channels);
  Values sum(n, 0.0), size(n, 0.0), square(n, 0.0), found = get(h.args.sums);
  for (std::size_t i = 0; i < y.size(); ++i) {
    sum[i % n] += y[i];
    size[i % n] += std::abs(y[i]);
    square[i % n] += y[i] * y[i];
  }
  expect_close(get(h.args.dst), y, activations.of(dtype), "dst by " + h.op().implementation());
  for (std::size_t c = 0; c < n; ++c) {
    EXPECT_NEAR(found[c], sum[c], sums.of(dtype) * size[c]) << c;
    EXPECT_NEAR(found[n + c], square[c], 2 * sums.of(dtype) * square[c]) << c;
  }
}

TEST_P(ConvSumsAgainstReference, SumsOfTheGradientMatch) {
  const auto [index, dtype] = GetParam();
  ConvSpec s = cases()[index].spec;
  s.dtype = dtype;
  s.produces_diff_sums = true;
  if (!is_supported(s)) return;
  BatchNormSpec norm;
  norm.src = s.src;
  norm.dtype = dtype;
  norm.activation = Activation::relu;
  const std::int64_t channels = s.src[-1];
  const std::size_t n = std::size_t(channels);

  OpHarness h(s);
  Values raw = random_values(s.src.count(), 1);
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += 0.3 * double(i % n % 5) - 0.5;
  h.args.norm_src = h.set_src(s.src, dtype, raw);
  const Values x = get(h.args.norm_src);
  const auto gamma = h.set_weight(2, {channels}, DType::f32, random_values(channels, 3));
  const auto beta = h.set_weight(3, {channels}, DType::f32, random_values(channels, 4));
  const auto f = reference::batch_norm_forward(norm, x, {}, gamma, beta);
  Values moments = f.mean;
  for (const double v : f.variance) moments.push_back(1 / std::sqrt(v + double(norm.epsilon)));
  h.want_sums(h.args.moments, channels);
  put(h.args.moments, moments);
  const auto y = h.set_src(0, s.src, dtype, f.dst);
  const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
  const auto dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 5));
  h.want_dst(s.dst(), dtype);
  h.want_diff_src(0, s.src, dtype);
  h.want_diff_weight(0, s.weight(), GradMode::write);
  h.want_sums(h.args.diff_sums, channels);
  h.repack();
  h.forward();
  h.backward();

  auto g = reference::conv_backward(s, y, w, dy);
  Values expected(2 * n, 0.0), size(2 * n, 0.0);
  for (std::size_t i = 0; i < g.src.size(); ++i) {
    if (f.dst[i] <= 0) g.src[i] = 0;
    const double terms[2] = {g.src[i] * (x[i] - moments[i % n]) * moments[n + i % n], g.src[i]};
    for (const std::size_t k : {0, 1}) {
      expected[k * n + i % n] += terms[k];
      size[k * n + i % n] += std::abs(terms[k]);
    }
  }
  const std::string with = " by " + h.op().implementation();
  expect_close(get(h.args.diff_src[0]), g.src, activations.of(dtype), "diff_src" + with);
  const Values found = get(h.args.diff_sums);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], sums.of(dtype) * size[i]) << i << with;
}

INSTANTIATE_TEST_SUITE_P(ConvSums, ConvSumsAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)));
                         });

// A typical layer of a ResNet, which every backend must support.
TEST(ConvSums, AreSupportedInF16For64Channels) {
  ConvSpec s = conv({8, 14, 14, 64}, 64, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}});
  s.dtype = DType::f16;
  for (const auto fusion : {&ConvSpec::produces_sums, &ConvSpec::produces_diff_sums}) {
    ConvSpec fused = s;
    fused.*fusion = true;
    EXPECT_EQ(backend().why_not_fused(fused), "");
  }
}

}  // namespace conv_sums_test
}  // namespace millrace
