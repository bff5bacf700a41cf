// Batch norm whose residual has a norm of its own.
#include <fmt/core.h>

#include "cpu/common/threads.hpp"
#include "reference/batch_norm.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace dual_norm_test {

using namespace test;

// Odd extents, few channels (rows are joined), an incomplete line, many channels (several tiles), one and two rows.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{2, 7, 5, 3},   {4, 9, 8, 64}, {3, 4, 3, 5, 70}, {5, 31, 29, 43},
                                      {9, 3, 3, 600}, {1, 5, 5, 16}, {40, 33},         {3, 597, 1}};
  return all;
}

// As in batch_norm_test.cpp and, for sums that are inputs, in batch_norm_sums_test.cpp.
constexpr Tolerance tolerance{8e-6, 5e-3, 6e-4};
constexpr double sum_tolerance = 1e-5;

BatchNormSpec spec_of(const Shape& shape, DType dtype, Activation activation = Activation::relu) {
  BatchNormSpec s;
  s.src = shape;
  s.residual = s.residual_norm = true;
  s.activation = activation;
  s.dtype = dtype;
  return s;
}

// The CPU keeps two operations.
bool lacks_kernel(const BatchNormSpec& s) {
  if (backend().merges_norm(s)) return false;
  EXPECT_THROW(backend().make(s), Error);
  return true;
}

Values sums_of(const Values& x, std::size_t channels) {
  Values sums(2 * channels, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i % channels] += x[i];
    sums[channels + i % channels] += x[i] * x[i];
  }
  return sums;
}

struct DualRun {
  OpHarness h;
  reference::NormInputs in[2];
  Values dy;

  explicit DualRun(const BatchNormSpec& s, double offset = 0) : h(s) {
    const std::int64_t channels = s.src[-1];
    for (int k = 0; k < 2; ++k) {
      Values raw = random_values(s.src.count(), std::uint64_t(10 * k + 1), 1 + k);
      for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += offset + 0.1 * double(i % std::size_t(channels) % 7);
      in[k].x = h.set_src(k, s.src, s.dtype, raw);
      in[k].gamma = h.set_weight(2 * k, {channels}, DType::f32, random_values(channels, std::uint64_t(10 * k + 3)));
      in[k].beta = h.set_weight(2 * k + 1, {channels}, DType::f32, random_values(channels, std::uint64_t(10 * k + 4)));
      h.want_diff_src(k, s.src, s.dtype);
    }
    h.want_dst(s.src, s.dtype);
    dy = h.set_diff_dst(s.src, s.dtype, random_values(s.src.count(), 5));
    h.state.row_weight = 0.125f;
    if (s.consumes_sums) set_sums(h.args.sums, in[0].x, channels);
    if (s.consumes_residual_sums) set_sums(h.args.residual_sums, in[1].x, channels);
  }
  void set_sums(Tensor& sums, const Values& x, std::int64_t channels) {
    h.want_sums(sums, channels);
    put(sums, sums_of(x, std::size_t(channels)));
  }
  reference::DualNorm expected(const BatchNormSpec& s) const { return reference::dual_norm(s, in[0], in[1], dy); }
};

void expect_statistics(const Tensor& found, const BatchNormSpec& s, const reference::BatchNormForward& f,
                       const Values& before) {
  const std::size_t channels = std::size_t(s.src[-1]);
  Values stats = before;
  for (std::size_t c = 0; c < channels; ++c) {
    stats[c] += double(s.src[0]) * 0.125 * f.mean[c];
    stats[channels + c] += double(s.src[0]) * 0.125 * f.unbiased[c];
  }
  expect_close(get(found), stats, 2e-6, "stats");
}

class DualNormAgainstReference
    : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode, std::pair<bool, bool>>> {};

TEST_P(DualNormAgainstReference, ForwardGradientsAndStatisticsMatch) {
  const auto [index, dtype, mode, consumes] = GetParam();
  BatchNormSpec s = spec_of(shapes()[index], dtype, index % 3 == 1 ? Activation::none : Activation::relu);
  if (lacks_kernel(s)) return;
  s.consumes_sums = consumes.first;
  s.consumes_residual_sums = consumes.second;
  const std::int64_t channels = s.src[-1];
  DualRun run(s);
  OpHarness& h = run.h;
  Values before[4];
  for (int w = 0; w < 4; ++w)
    before[w] = h.want_diff_weight(w, {channels}, mode, random_values(channels, std::uint64_t(20 + w)));
  const Values stats0 = h.want_stats({2, channels}, mode, random_values(2 * channels, 8));
  const Tensor stats = h.args.stats;
  const Values residual0 = h.want_stats({2, channels}, mode, random_values(2 * channels, 9));
  h.args.residual_stats = std::exchange(h.args.stats, stats);
  h.forward();
  h.backward();

  const reference::DualNorm expected = run.expected(s);
  expect_close(get(h.args.dst), expected.norm.dst, tolerance.of(dtype), "dst");
  const reference::BatchNormGradients* gradients[] = {&expected.gradients, &expected.gradients2};
  for (int k = 0; k < 2; ++k) {
    expect_close(get(h.args.diff_src[k]), gradients[k]->src, tolerance.of(dtype), fmt::format("diff_src {}", k));
    Values gamma = gradients[k]->gamma, beta = gradients[k]->beta;
    for (std::size_t c = 0; c < gamma.size(); ++c) {
      gamma[c] += before[2 * k][c];
      beta[c] += before[2 * k + 1][c];
    }
    expect_close(get(h.args.diff_weight[2 * k]), gamma, sum_tolerance, fmt::format("diff_gamma {}", k));
    expect_close(get(h.args.diff_weight[2 * k + 1]), beta, sum_tolerance, fmt::format("diff_beta {}", k));
  }
  expect_statistics(h.args.stats, s, expected.norm, stats0);
  expect_statistics(h.args.residual_stats, s, expected.norm2, residual0);
}

INSTANTIATE_TEST_SUITE_P(DualNorm, DualNormAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, shapes().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add),
                                            ::testing::Values(std::pair(false, false), std::pair(true, false),
                                                              std::pair(true, true))),
                         [](const auto& info) {
                           const auto consumes = std::get<3>(info.param);
                           return fmt::format("shape_{}_{}{}{}{}", std::get<0>(info.param),
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write",
                                              consumes.first ? "_sums" : "", consumes.second ? "_residual_sums" : "");
                         });

TEST(DualNormReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {0, 6}) {
    const BatchNormSpec s = spec_of(shapes()[index], DType::f32);
    const std::int64_t n = s.src.count(), channels = s.src[-1];
    const auto inputs = [&](std::uint64_t seed) {
      return reference::NormInputs{random_values(n, seed), random_values(channels, seed + 1),
                                   random_values(channels, seed + 2)};
    };
    const reference::NormInputs a = inputs(1), b = inputs(11);
    const Values dy = random_values(n, 5);
    const auto g = reference::dual_norm(s, a, b, dy);
    const auto f = [&](Values reference::NormInputs::*changed, const Values& v) {
      reference::NormInputs other = b;
      other.*changed = v;
      return reference::dual_norm(s, a, other, dy).norm.dst;
    };
    using In = reference::NormInputs;
    expect_gradient([&](const Values& v) { return f(&In::x, v); }, b.x, dy, g.gradients2.src, "x", 1e-6, 1e-5);
    expect_gradient([&](const Values& v) { return f(&In::gamma, v); }, b.gamma, dy, g.gradients2.gamma, "gamma");
    expect_gradient([&](const Values& v) { return f(&In::beta, v); }, b.beta, dy, g.gradients2.beta, "beta");
  }
}

TEST(DualNormOp, InferenceUsesTheRunningValuesOfBothNorms) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : shapes()) {
      BatchNormSpec s = spec_of(shape, dtype);
      s.mode = Mode::infer;
      if (lacks_kernel(s)) return;
      DualRun run(s);
      EXPECT_EQ(run.h.op().memory_requirements().saved, 0u);
      for (int k = 0; k < 2; ++k) {
        const Shape channels{shape[-1]};
        const std::uint64_t seed = std::uint64_t(30 + 10 * k);
        Values variance = random_values(shape[-1], seed + 1);
        for (double& v : variance) v = v * v + 0.01;
        run.in[k].running = {run.h.set_weight(4 + 2 * k, channels, DType::f32, random_values(shape[-1], seed)),
                             run.h.set_weight(5 + 2 * k, channels, DType::f32, variance)};
      }
      run.h.forward();
      expect_close(get(run.h.args.dst), run.expected(s).norm.dst, tolerance.of(dtype), shape.str());
    }
}

// The mean is 17 standard deviations of the first source. Cancellation must not make the gradients inaccurate.
TEST(DualNormOp, GradientsAreAccurateForALargeMean) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const BatchNormSpec s = spec_of({4, 20, 20, 24}, dtype);
    if (lacks_kernel(s)) return;
    DualRun run(s, 10);
    run.h.want_diff_weight(0, {24}, GradMode::write);
    run.h.want_diff_weight(2, {24}, GradMode::write);
    run.h.forward();
    run.h.backward();
    const auto expected = run.expected(s);
    expect_close(get(run.h.args.dst), expected.norm.dst, tolerance.of(dtype), "dst");
    expect_close(get(run.h.args.diff_src[0]), expected.gradients.src, tolerance.of(dtype), "diff_src 0");
    expect_close(get(run.h.args.diff_src[1]), expected.gradients2.src, tolerance.of(dtype), "diff_src 1");
    expect_close(get(run.h.args.diff_weight[0]), expected.gradients.gamma, sum_tolerance, "diff_gamma 0");
    expect_close(get(run.h.args.diff_weight[2]), expected.gradients2.gamma, sum_tolerance, "diff_gamma 1");
  }
}

TEST(DualNormOp, WritesOnlyTheRequestedGradient) {
  const BatchNormSpec s = spec_of({4, 9, 8, 24}, DType::f32);
  if (lacks_kernel(s)) return;
  for (const int k : {0, 1}) {
    DualRun run(s);
    run.h.args.diff_src[std::size_t(1 - k)] = {};
    run.h.forward();
    run.h.backward();
    const auto expected = run.expected(s);
    expect_close(get(run.h.args.diff_src[std::size_t(k)]), k == 0 ? expected.gradients.src : expected.gradients2.src,
                 tolerance.of(s.dtype), "diff_src");
  }
}

TEST(DualNormOp, NanPassesTheRelu) {
  const BatchNormSpec s = spec_of({2, 3, 3, 4}, DType::f32);
  if (lacks_kernel(s)) return;
  for (const int k : {0, 1}) {
    DualRun run(s);
    run.in[k].x[5] = std::nan("");
    put(run.h.args.src[std::size_t(k)], run.in[k].x);
    run.h.forward();
    EXPECT_TRUE(std::isnan(get(run.h.args.dst)[1]));
  }
}

TEST(DualNormOp, ResultsDoNotDependOnTheThreadCount) {
  const BatchNormSpec s = spec_of({8, 33, 31, 48}, DType::f16);
  if (lacks_kernel(s)) return;
  const int threads = cpu::thread_count();
  std::vector<Values> results[2];
  for (int i = 0; i < 2; ++i) {
    cpu::set_thread_count(1 + 2 * i);
    DualRun run(s);
    for (int w = 0; w < 4; ++w) run.h.want_diff_weight(w, {48}, GradMode::write);
    run.h.forward();
    run.h.backward();
    for (const auto& t : {run.h.args.dst, run.h.args.diff_src[0], run.h.args.diff_src[1], run.h.args.diff_weight[0],
                          run.h.args.diff_weight[3]})
      results[i].push_back(get(t));
  }
  cpu::set_thread_count(threads);
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace dual_norm_test
}  // namespace millrace
