// Convolutions of the CPU that share values with the norms around them, in several chunks.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "cpu/common/ops.hpp"
#include "cpu/common/stream.hpp"
#include "cpu/fused_conv/conv_chunks.hpp"
#include "reference/conv.hpp"
#include "support/op_harness.hpp"
#include "support/thread_count.hpp"

namespace millrace {
namespace chunked_conv_test {

using namespace test;

// What the convolution shares with the norms around it.
struct Shared {
  bool sums = true, diff_sums = true, normalised = true, diff_dst = true;
};

struct Case {
  const char* name;
  Shape src;
  std::int64_t out;
  Window window;
  std::int64_t groups = 1;
  Activation activation = Activation::relu;
  bool bias = false;
  Shared shared = {};

  ConvSpec spec(DType dtype) const {
    ConvSpec s;
    s.src = src;
    s.out_channels = out;
    s.window = window;
    s.groups = groups;
    s.bias = bias;
    s.dtype = dtype;
    s.norm_activation = activation;
    s.produces_sums = shared.sums;
    s.produces_diff_sums = shared.diff_sums;
    s.normalises_src = shared.normalised;
    s.normalises_diff_dst = shared.diff_dst;
    return s;
  }
};

// Chunks of pixels, lines and images; a last chunk that is smaller; lines of the source that no window reads; channels
// in several slabs of the norm; padding of more lines than an even chunk would have; lines that three chunks share.
const std::vector<Case>& cases() {
  constexpr auto relu = Activation::relu, relu6 = Activation::relu6;
  const Window three{.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}};
  static const std::vector<Case> all{
      {"pixels", {4, 61, 41, 24}, 40, {}, 1, relu6},
      {"pixels_with_bias", {3, 40, 97, 40}, 24, {}, 1, relu, true},
      {"many_channels", {4, 25, 21, 300}, 24, {}},
      {"lines", {2, 99, 40, 64}, 64, three, 64, relu6},
      {"dilated_lines", {2, 66, 80, 64}, 64, {.kernel = {5, 3, 1}, .pad = {4, 2, 0}, .dilation = {2, 2, 1}}, 64},
      {"unread_line", {1, 100, 60, 64}, 64, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}}, 64},
      {"dense_lines", {1, 88, 80, 72}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}},
      {"images", {14, 20, 24, 48}, 48, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 48, relu6},
      {"strided_pixels", {10, 50, 40, 24}, 16, {.stride = {2, 2, 1}}},
      {"volumes", {2, 8, 30, 40, 24}, 24, {.rank = 3, .kernel = {3, 3, 3}, .pad = {1, 1, 1}}, 24},
      {"more_padding",
       {2, 500, 512},
       512,
       {.rank = 1, .kernel = {3, 1, 1}, .pad = {128, 0, 0}, .dilation = {64, 1, 1}},
       512},
      {"shared_lines", {1, 12, 400, 64}, 64, {.kernel = {7, 3, 1}, .pad = {3, 1, 0}}, 64},
      {"only_sums", {2, 99, 40, 64}, 64, three, 64, relu, false, {true, false, false, false}},
      {"only_gradient", {2, 99, 40, 64}, 64, three, 64, relu, false, {false, false, false, true}},
      {"stored_source", {4, 61, 41, 24}, 40, {}, 1, relu6, false, {false, true, false, false}},
      {"stored_lines", {2, 99, 40, 64}, 64, three, 64, relu, false, {true, true, false, true}},
  };
  return all;
}

// As in conv_normalised_test.cpp. The gradient of the norm behind is rounded to dtype before it is multiplied.
constexpr Tolerance activations{4e-6, 2e-2, 3e-3}, sums{5e-6, 6e-3, 1e-3};

// The norms before and behind the convolution. x has no value near the thresholds of the activation, so that rounding
// does not decide which gradients pass.
struct Norms {
  Values x, y, moments, w, bias, g, of_next;
  Norms(OpHarness& h, const ConvSpec& s) {
    const std::int64_t channels = s.src[-1];
    const std::size_t n = std::size_t(channels);
    Values gamma = h.set_weight(2, {channels}, DType::f32, Values(n, 1.5));
    for (std::size_t c = 0; c < n; ++c) gamma[c] = c % 3 == 1 ? -2.0 : 3.0;
    put(h.args.weight[2], gamma);
    const Values beta = h.set_weight(3, {channels}, DType::f32, random_values(channels, 4));
    moments = random_values(2 * channels, 6);
    for (std::size_t c = 0; c < n; ++c) moments[n + c] = 1.5 + 0.5 * moments[n + c];
    h.want_sums(h.args.moments, channels);
    put(h.args.moments, moments);
    moments = get(h.args.moments);
    const auto norm = [&](std::size_t i) {
      return (x[i] - moments[i % n]) * moments[n + i % n] * gamma[i % n] + beta[i % n];
    };
    x = random_values(s.src.count(), 1, 2);
    for (std::size_t i = 0; i < x.size(); ++i)
      while (std::abs(norm(i)) < 0.1 || std::abs(norm(i) - 6) < 0.1) x[i] += 0.1;
    x = h.set_src(0, s.src, s.dtype, x);
    h.args.norm_src = h.args.src[0];
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back(std::clamp(norm(i), 0.0, s.norm_activation == Activation::relu6 ? 6.0 : 1e9));
    if (!s.normalises_src) y = h.set_src(0, s.src, s.dtype, y);
    w = h.set_weight(0, s.weight(), s.dtype, random_values(s.weight().count(), 2));
    if (s.bias) bias = h.set_weight(1, {s.out_channels}, DType::f32, Values(std::size_t(s.out_channels), 20));
    g = h.set_diff_dst(s.dst(), s.dtype, random_values(s.dst().count(), 5));
    of_next = random_values(4 * s.out_channels, 7);
    h.args.diff_affine = h.set_src({4, s.out_channels}, DType::f32, of_next);
    of_next = get(h.args.diff_affine);
  }
};

class ChunkedConvAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType, int>> {};

void expect_sums(const Values& found, const Values& first, const Values& second, std::size_t n, double tolerance) {
  Values a(n, 0.0), b(n, 0.0), sizes[2] = {Values(n, 0.0), Values(n, 0.0)};
  for (std::size_t i = 0; i < first.size(); ++i) {
    a[i % n] += first[i];
    b[i % n] += second[i];
    sizes[0][i % n] += std::abs(first[i]);
    sizes[1][i % n] += std::abs(second[i]);
  }
  for (std::size_t c = 0; c < n; ++c) {
    EXPECT_NEAR(found[c], a[c], tolerance * sizes[0][c]) << c;
    EXPECT_NEAR(found[n + c], b[c], tolerance * sizes[1][c]) << c;
  }
}

// The variance from the sums is that of the result, though its mean is far from 0.
void expect_moments(const Values& sums, const Values& dst, std::size_t n, double tolerance) {
  const double rows = double(dst.size() / n);
  for (std::size_t c = 0; c < n; ++c) {
    double mean = 0, squares = 0;
    for (std::size_t i = c; i < dst.size(); i += n) mean += dst[i] / rows;
    for (std::size_t i = c; i < dst.size(); i += n) squares += std::pow(dst[i] - mean, 2);
    const double sum = sums[c] + sums[2 * n + c], square = sums[n + c] + sums[3 * n + c];
    EXPECT_NEAR(square - sum * sum / rows, squares, tolerance * squares) << c;
  }
}

TEST_P(ChunkedConvAgainstReference, ResultSumsAndGradientsMatch) {
  const auto [index, dtype, threads] = GetParam();
  const ConvSpec s = cases()[index].spec(dtype);
  const ThreadCount kept(threads);
  ASSERT_GT(cpu::ConvChunks(s).count(), 1);
  OpHarness h(s);
  const Norms norms(h, s);
  const std::size_t k = std::size_t(s.out_channels), n = std::size_t(s.src[-1]);
  h.want_dst(s.dst(), dtype);
  h.args.sums = h.set_src({4, s.out_channels}, DType::f32, Values(4 * k, NAN));
  h.want_diff_src(0, s.src, dtype);
  h.want_sums(h.args.diff_sums, s.src[-1]);
  const GradMode mode = threads == 3 ? GradMode::add : GradMode::write;
  const auto before = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 8));
  if (s.bias) h.want_diff_weight(1, {s.out_channels}, GradMode::write);
  h.repack();
  h.forward();
  h.backward();

  SCOPED_TRACE(h.op().implementation());
  const Values y = reference::conv_forward(s, norms.y, norms.w, norms.bias), dst = get(h.args.dst);
  expect_close(dst, y, activations.of(dtype), "dst");
  Values squares;
  for (const double v : y) squares.push_back(v * v);
  const Values found = get(h.args.sums);
  if (s.produces_sums) expect_sums(found, y, squares, k, 2 * sums.of(dtype));
  if (s.produces_sums && dtype == DType::f32) expect_moments(found, dst, k, 1e-5);

  Values dy = norms.g;
  const Values& p = norms.of_next;
  for (std::size_t i = 0; s.normalises_diff_dst && i < dy.size(); ++i)
    dy[i] = p[k + i % k] * (dy[i] - p[2 * k + i % k] - (dst[i] - p[i % k]) * p[3 * k + i % k]);
  auto g = reference::conv_backward(s, norms.y, norms.w, dy);
  for (std::size_t i = 0; i < before.size(); ++i) g.weight[i] += before[i];
  expect_close(get(h.args.diff_weight[0]), g.weight, activations.of(dtype), "diff_weight");
  if (s.bias) expect_close(get(h.args.diff_weight[1]), g.bias, 10 * activations.of(dtype), "diff_bias");
  Values products;
  for (std::size_t i = 0; i < g.src.size(); ++i) {
    const bool passes = norms.y[i] > 0 && (s.norm_activation == Activation::relu || norms.y[i] < 6);
    if (s.produces_diff_sums && !passes) g.src[i] = 0;
    products.push_back(g.src[i] * (norms.x[i] - norms.moments[i % n]) * norms.moments[n + i % n]);
  }
  expect_close(get(h.args.diff_src[0]), g.src, activations.of(dtype), "diff_src");
  if (s.produces_diff_sums) expect_sums(get(h.args.diff_sums), products, g.src, n, sums.of(dtype));
}

INSTANTIATE_TEST_SUITE_P(ChunkedConv, ChunkedConvAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16), ::testing::Values(1, 3)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)), std::get<2>(info.param));
                         });

// All but the gradients of the weights, for any number of threads.
TEST(ChunkedConv, ResultsDoNotDependOnTheThreadCount) {
  for (const char* name : {"pixels", "lines", "images"}) {
    const auto& c = *std::ranges::find_if(cases(), [&](const Case& at) { return std::string(at.name) == name; });
    const ConvSpec s = c.spec(DType::f32);
    std::vector<Values> first;
    for (const int threads : {1, 2, 3, 3}) {
      const ThreadCount kept(threads);
      OpHarness h(s);
      const Norms norms(h, s);
      h.want_dst(s.dst(), s.dtype);
      h.args.sums = h.set_src({4, s.out_channels}, DType::f32, Values(std::size_t(4 * s.out_channels), NAN));
      h.want_diff_src(0, s.src, s.dtype);
      h.want_sums(h.args.diff_sums, s.src[-1]);
      h.repack();
      h.forward();
      h.backward();  // of frozen weights
      std::vector<Values> found;
      for (const Tensor& t : {h.args.dst, h.args.sums, h.args.diff_src[0], h.args.diff_sums}) found.push_back(get(t));
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << name << " " << threads;
    }
  }
}

// Each row of the result and of the finished gradient belongs to one chunk, and a chunk has the extents of its spec.
TEST(ChunkedConv, ChunksCoverTheTensorsOnce) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const ConvSpec s = c.spec(DType::f32);
    const cpu::ConvChunks chunks(s);
    std::int64_t dst = 0, src = 0;
    for (std::int64_t group = 0; group < chunks.groups(); ++group)
      for (std::int64_t i = 0; i < chunks.of_group(); ++i) {
        const cpu::ConvChunks::Place p = chunks.place(group, i);
        const ConvSpec& of = chunks.spec(p.last);
        EXPECT_EQ(p.dst, dst);
        EXPECT_EQ(p.src, src);
        EXPECT_GE(p.final_rows, 0);
        EXPECT_LE(p.final_rows, p.rows);
        EXPECT_EQ((p.above + p.rows + p.below) * s.src[-1], of.src.count());
        dst += of.dst().count() / s.out_channels;
        src += p.final_rows;
      }
    EXPECT_EQ(dst * s.out_channels, s.dst().count());
    EXPECT_EQ(src * s.src[-1], s.src.count());
  }
}

TEST(ChunkedConv, StreamsCopyTheirBytesAndNoOthers) {
  std::vector<char> from(400);
  std::iota(from.begin(), from.end(), char(1));
  for (const std::size_t begin : {0, 1, 63, 64})
    for (const std::size_t count : {0, 1, 62, 64, 129, 250}) {
      std::vector<char> to(from.size(), 0), expected = to;
      cpu::stream_copy(to.data() + begin, from.data() + 7, count);
      std::copy_n(from.begin() + 7, count, expected.begin() + std::ptrdiff_t(begin));
      EXPECT_EQ(to, expected) << begin << " " << count;
    }
}

// Where it pays: large tensors, one tap or depthwise, few multiplications for each byte, work for all threads.
TEST(ChunkedConv, PaysWhereMemoryBounds) {
  const ThreadCount kept(2);
  const Case narrow{"", {32, 64, 64, 16}, 96, {}}, deep{"", {32, 64, 64, 256}, 256, {}},
      small{"", {8, 32, 32, 16}, 96, {}},
      depthwise{"", {32, 64, 64, 96}, 96, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 96},
      dense{"", {32, 64, 64, 16}, 96, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}},
      large{"", {1, 900, 900, 24}, 24, {.stride = {2, 2, 1}}},
      few_images{"", {3, 300, 300, 8}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 8};
  EXPECT_TRUE(cpu::chunking_pays(narrow.spec(DType::f32)));
  EXPECT_TRUE(cpu::chunking_pays(depthwise.spec(DType::f32)));
  EXPECT_FALSE(cpu::chunking_pays(deep.spec(DType::f32)));
  EXPECT_FALSE(cpu::chunking_pays(small.spec(DType::f32)));
  EXPECT_FALSE(cpu::chunking_pays(dense.spec(DType::f32)));
  EXPECT_FALSE(cpu::chunking_pays(few_images.spec(DType::f32)));
  EXPECT_FALSE(cpu::chunking_pays(large.spec(DType::f32))) << "a chunk is a whole image";
  EXPECT_FALSE(cpu::chunking_pays(narrow.spec(DType::f16))) << "emulated";
}

}  // namespace chunked_conv_test
}  // namespace millrace
