// Operations with constant tables.
#include "reference/tables.hpp"

#include <fmt/core.h>

#include <limits>

#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace tables_test {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr Tolerance rounded{2e-6, 8e-3, 1e-3};

// A fixed order of the numbers below `count`.
std::vector<std::int32_t> shuffled(std::int32_t count) {
  std::vector<std::int32_t> out;
  std::int32_t step = 7;
  while (count % step == 0) ++step;
  for (std::int32_t i = 0; i < count; ++i) out.push_back(std::int32_t(std::int64_t(i) * step % count));
  return out;
}

struct GatherCase {
  Shape src, to;
  std::int64_t size;
  std::vector<std::int32_t> index;
};

std::vector<GatherCase> gather_cases() {
  return {{{3, 4, 6}, {3, 4, 6}, 1, shuffled(6)},          // channels of each position
          {{2, 5, 16}, {2, 80}, 16, shuffled(5)},          // positions, in wide accesses
          {{2, 7, 9}, {2, 9, 7}, 1, shuffled(63)},         // all elements of a row
          {{2, 4, 8}, {2, 6, 8}, 8, {3, -1, 0, 1, 1, 3}},  // zeros, copies, and a block without one
          {{2, 3, 5}, {2, 4, 5}, 5, {-1, 2, 2, 2}},        // narrow blocks
          {{1, 1, 2056}, {1, 3, 2056}, 2056, {0, 0, 0}},   // wider than a tile
          {{70, 1, 24}, {70, 30, 24}, 24, std::vector<std::int32_t>(30, 0)}};
}

TEST(GatherOp, CopiesBlocksAndSumsTheGradientsOfCopies) {
  for (const DType dtype : dtypes)
    for (const auto& [src, to, size, index] : gather_cases()) {
      const GatherSpec s{src, to, size, Table<std::int32_t>(index), dtype, Mode::train};
      OpHarness h(s);
      const Values x = h.set_src(0, src, dtype, random_values(src.count(), 1)),
                   dy = h.set_diff_dst(to, dtype, random_values(to.count(), 2));
      h.want_dst(to, dtype);
      h.want_diff_src(0, src, dtype);
      h.forward();
      h.backward();
      EXPECT_EQ(get(h.args.dst), reference::gather(s, x)) << src.str();
      Values expected(x.size(), 0.0);
      for (std::int64_t outer = 0; outer < s.outer(); ++outer)
        for (std::int64_t b = 0; b < s.index.size(); ++b)
          for (std::int64_t i = 0; i < size; ++i)
            if (s.index[b] >= 0)
              expected[std::size_t((outer * s.blocks() + s.index[b]) * size + i)] +=
                  dy[std::size_t((outer * s.index.size() + b) * size + i)];
      expect_close(get(h.args.diff_src[0]), expected, rounded.of(dtype), src.str() + " gradient");
    }
}

TEST(GatherOp, IndicesOutOfRangeAreRefused) {
  for (const std::vector<std::int32_t>& index : {std::vector<std::int32_t>{0, 1, 4}, {0, -2, 1}})
    expect_error(Exit::config, "is not below 3", [&] {
      OpHarness h(GatherSpec{{2, 3, 4}, {2, 3, 4}, 4, Table<std::int32_t>(index), DType::f32, Mode::train});
    });
  expect_error(Exit::config, "do not fit", [] {
    OpHarness h(GatherSpec{{2, 3, 4}, {2, 5}, 4, Table<std::int32_t>({0, 1}), DType::f32, Mode::train});
  });
}

std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  const Values v = random_values(count, seed);
  return {v.begin(), v.end()};
}

TEST(AffineOp, MultipliesAndAddsConstants) {
  struct Case {
    Shape src;
    std::int64_t scales, offsets, inner;
  };
  for (const DType dtype : dtypes)
    for (const auto& [src, scales, offsets, inner] :
         {Case{{3, 7, 5}, 1, 1, 1}, Case{{2, 6, 16}, 16, 1, 1}, Case{{2, 6, 16}, 1, 6, 16}, Case{{2, 3, 5}, 5, 5, 1},
          Case{{2, 3, 5}, 15, 15, 1}, Case{{3, 2, 3, 5}, 1, 2, 15}, Case{{40, 300, 8}, 2400, 1, 1}}) {
      const AffineSpec s{src,        Table<float>(numbers(scales, 3)), Table<float>(numbers(offsets, 4)), inner, dtype,
                         Mode::train};
      OpHarness h(s);
      const Values x = h.set_src(0, src, dtype, random_values(src.count(), 1)),
                   dy = h.set_diff_dst(src, dtype, random_values(src.count(), 2));
      h.want_dst(src, dtype);
      h.want_diff_src(0, src, dtype);
      h.forward();
      h.backward();
      const std::string what = fmt::format("{} {} {} {}", src.str(), scales, offsets, name_of(dtype));
      expect_close(get(h.args.dst), reference::affine(s, x), rounded.of(dtype), what);
      expect_close(get(h.args.diff_src[0]), reference::affine(s, dy, false), rounded.of(dtype), what + " gradient");
    }
  expect_error(Exit::config, "do not divide rows", [] {
    OpHarness h(AffineSpec{{2, 7}, Table<float>{1, 2}, Table<float>{0}, 1, DType::f32, Mode::train});
  });
}

TEST(AffineOp, ScalesOfZeroMaskInfinitiesAndNaN) {
  struct Case {
    Shape src;
    std::int64_t entries, inner;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const double special[] = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()};
  for (const DType dtype : dtypes)
    for (const auto& [src, entries, inner] : {Case{{2, 6, 16}, 1, 1}, Case{{2, 6, 16}, 16, 1}, Case{{2, 6, 16}, 6, 16},
                                              Case{{2, 3, 5}, 15, 1}, Case{{2, 3, 5}, 3, 5}}) {
      std::vector<float> scales = numbers(entries, 3);
      for (std::size_t i = 0; i < scales.size(); i += 2) scales[i] = 0;
      const AffineSpec s{src, Table<float>(scales), Table<float>(numbers(entries, 4)), inner, dtype, Mode::train};
      Values raw = random_values(src.count(), 1), raw_gradient = random_values(src.count(), 2);
      for (std::size_t i = 0; i < raw.size(); ++i)
        if (reference::entry(s.scale, s, i) == 0) raw[i] = raw_gradient[i] = special[i % 3];
      OpHarness h(s);
      const Values x = h.set_src(0, src, dtype, raw), dy = h.set_diff_dst(src, dtype, raw_gradient);
      h.want_dst(src, dtype);
      h.want_diff_src(0, src, dtype);
      h.forward();
      h.backward();
      const std::string what = fmt::format("{} {} {}", src.str(), entries, name_of(dtype));
      expect_close(get(h.args.dst), reference::affine(s, x), rounded.of(dtype), what);
      expect_close(get(h.args.diff_src[0]), reference::affine(s, dy, false), rounded.of(dtype), what + " gradient");
    }
}

TEST(IndexedBiasOp, AddsEntriesAndSumsTheirGradients) {
  struct Case {
    Shape src;
    std::int64_t entries;
    std::vector<std::int32_t> index;
  };
  std::vector<std::int32_t> many;
  for (std::int32_t i = 0; i < 2400; ++i) many.push_back(i * 13 % 101 - 1);
  for (const DType dtype : dtypes)
    for (const auto& [src, entries, index] :
         {Case{{3, 2, 6}, 4, {0, 3, -1, 3, 0, 0}}, Case{{5, 4, 8}, 9, shuffled(8)}, Case{{200, 2400}, 100, many}})
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const IndexedBiasSpec s{src, entries, Table<std::int32_t>(index), dtype, Mode::train};
        OpHarness h(s);
        const Values x = h.set_src(0, src, dtype, random_values(src.count(), 1)),
                     bias = h.set_weight(0, {entries}, DType::f32, random_values(entries, 2)),
                     dy = h.set_diff_dst(src, dtype, random_values(src.count(), 3));
        h.want_dst(src, dtype);
        h.want_diff_src(0, src, dtype);
        Values expected = h.want_diff_weight(0, {entries}, mode, random_values(entries, 4));
        for (std::size_t i = 0; i < dy.size(); ++i)
          if (const std::int32_t at = index[i % index.size()]; at >= 0) expected[std::size_t(at)] += dy[i];
        h.forward();
        h.backward();
        expect_close(get(h.args.dst), reference::indexed_bias(s, x, bias), rounded.of(dtype), src.str());
        EXPECT_EQ(get(h.args.diff_src[0]), dy);
        expect_close(get(h.args.diff_weight[0]), expected, 2e-6, src.str() + " gradient of the bias");
      }
  expect_error(Exit::config, "is not below 4", [] {
    OpHarness h(IndexedBiasSpec{{2, 3}, 4, Table<std::int32_t>({0, 1, 4}), DType::f32, Mode::train});
  });
}

TEST(PowerOp, ForwardAndGradientMatch) {
  for (const DType dtype : dtypes)
    for (const float exponent : {0.5f, -0.5f, -1.0f, 2.5f})
      for (const Shape& src : {Shape{3, 7}, Shape{2, 5, 16}, Shape{20, 3001}}) {
        const PowerSpec s{src, exponent, dtype, Mode::train};
        OpHarness h(s);
        Values raw = random_values(src.count(), 1);
        for (double& v : raw) v = 0.5 + v * v;
        if (exponent == 0.5f) raw[3] = 0;
        const Values x = h.set_src(0, src, dtype, raw), dy = h.set_diff_dst(src, dtype, random_values(src.count(), 2));
        h.want_dst(src, dtype);
        h.want_diff_src(0, src, dtype);
        h.forward();
        h.backward();
        expect_close(get(h.args.dst), reference::power(s, x), rounded.of(dtype), src.str());
        expect_close(get(h.args.diff_src[0]), reference::power_gradient(s, x, dy), rounded.of(dtype), "gradient");
      }
}

TEST(SoftmaxOp, ForwardAndGradientMatch) {
  for (const DType dtype : dtypes)
    for (const Shape& src : {Shape{3, 7}, Shape{2, 5, 16}, Shape{2, 3, 49}, Shape{1, 1}, Shape{2, 9000}}) {
      const SoftmaxSpec s{src, dtype, Mode::train};
      OpHarness h(s);
      Values raw = random_values(src.count(), 1);
      for (double& v : raw) v *= 5;
      raw[0] = -1e4;  // as masked
      const Values x = h.set_src(0, src, dtype, raw), dy = h.set_diff_dst(src, dtype, random_values(src.count(), 2));
      h.want_dst(src, dtype);
      h.want_diff_src(0, src, dtype);
      h.forward();
      const Values y = get(h.args.dst);
      h.backward();
      expect_close(y, reference::softmax(s, x), rounded.of(dtype), src.str());
      expect_close(get(h.args.diff_src[0]), reference::softmax_gradient(s, y, dy),
                   Tolerance{1e-5, 8e-3, 1e-3}.of(dtype), src.str() + " gradient");
    }
}

TEST(BatchedMatmulOp, ForwardAndGradientsMatch) {
  struct Case {
    std::int64_t batch, m, n, k;
  };
  for (const DType dtype : dtypes)
    for (const auto& [batch, m, n, k] : {Case{1, 5, 7, 3}, Case{6, 9, 4, 16}, Case{40, 8, 8, 32}})
      for (const int turned : {0, 1, 2, 3}) {
        BatchedMatmulSpec s{batch, m, n, k, (turned & 1) != 0, (turned & 2) != 0, {batch, m, n}, dtype, Mode::train};
        const Shape a{batch, m, k}, b{batch, k, n};
        OpHarness h(s);
        const Values x = h.set_src(0, a, dtype, random_values(a.count(), 1)),
                     y = h.set_src(1, b, dtype, random_values(b.count(), 2)),
                     dz = h.set_diff_dst(s.to, dtype, random_values(s.to.count(), 3));
        h.want_dst(s.to, dtype);
        h.want_diff_src(0, a, dtype);
        h.want_diff_src(1, b, dtype);
        h.forward();
        h.backward();
        const std::string what = fmt::format("{} x {} x {} x {} {} {}", batch, m, n, k, turned, name_of(dtype));
        const double tolerance = Tolerance{1e-5, 8e-3, 1e-3}.of(dtype);
        expect_close(get(h.args.dst), reference::batched_matmul(s, x, y), tolerance, what);
        const auto expected = reference::batched_matmul_gradients(s, x, y, dz);
        expect_close(get(h.args.diff_src[0]), expected.a, tolerance, what + " gradient of a");
        expect_close(get(h.args.diff_src[1]), expected.b, tolerance, what + " gradient of b");
      }
}

TEST(PowerReference, GradientMatchesFiniteDifferences) {
  const PowerSpec s{{2, 5}, -1.5f, DType::f32, Mode::train};
  Values x = random_values(10, 1);
  for (double& v : x) v = 1 + v * v;
  const Values dy = random_values(10, 2);
  expect_gradient([&](const Values& v) { return reference::power(s, v); }, x, dy, reference::power_gradient(s, x, dy),
                  "src");
}

TEST(SoftmaxReference, GradientMatchesFiniteDifferences) {
  const SoftmaxSpec s{{2, 3, 5}, DType::f32, Mode::train};
  const Values x = random_values(30, 1), dy = random_values(30, 2);
  expect_gradient([&](const Values& v) { return reference::softmax(s, v); }, x, dy,
                  reference::softmax_gradient(s, reference::softmax(s, x), dy), "src");
}

TEST(BatchedMatmulReference, GradientsMatchFiniteDifferences) {
  const BatchedMatmulSpec s{2, 3, 4, 5, true, false, {2, 3, 4}, DType::f32, Mode::train};
  const Values a = random_values(30, 1), b = random_values(40, 2), dz = random_values(24, 3);
  const auto gradients = reference::batched_matmul_gradients(s, a, b, dz);
  expect_gradient([&](const Values& v) { return reference::batched_matmul(s, v, b); }, a, dz, gradients.a, "a");
  expect_gradient([&](const Values& v) { return reference::batched_matmul(s, a, v); }, b, dz, gradients.b, "b");
}

}  // namespace tables_test
}  // namespace millrace
