#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cpu/common/threads.hpp"
#include "ops/optimizer_memory.hpp"

namespace millrace {
namespace optimizer_test {

using namespace test;

class OptimizerAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(OptimizerAgainstReference, FiveStepsMatch) {
  const auto [index, dtype] = GetParam();
  OptimizerSpec s = optimizer_cases()[index].spec;
  s.weight_dtype = dtype;
  OptimizerMemory m(s);
  if (s.moment_count() == 2) m.state.learning_rate = 0.01f;
  m.state.loss_scale = 8;
  m.state.scale_on = 1;
  m.state.scale_interval = 3;
  auto o = m.reference();
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < m.gradient.size(); ++i) m.gradient[i] *= step % 2 ? -1.1f : 1.3f;
    reference::optimizer_step(s, m.state, o, OptimizerMemory::doubles(m.gradient), OptimizerMemory::doubles(m.stats));
    m.step();
  }
  // float32 arithmetic, five steps.
  expect_close(OptimizerMemory::doubles(m.master), o.master, 1e-6, "master");
  expect_close(OptimizerMemory::doubles(m.moment1), o.moment1, 1e-6, "moment1");
  expect_close(OptimizerMemory::doubles(m.moment2), o.moment2, 1e-6, "moment2");
  if (s.average > 0) expect_close(OptimizerMemory::doubles(m.average), o.average, 1e-6, "average");
  if (s.stats_count) expect_close(OptimizerMemory::doubles(m.running), o.running, 1e-6, "running");
  EXPECT_EQ(double(m.state.loss_scale), o.loss_scale);
  EXPECT_EQ(m.state.loss_scale, 16);  // grew once, after three steps
  EXPECT_EQ(m.state.clean_steps, o.clean_steps);
  EXPECT_EQ(m.state.applied, 5u);
  EXPECT_EQ(m.state.attempted, 5u);
  EXPECT_EQ(m.state.found_inf, 0u);
  EXPECT_NEAR(m.state.grad_norm, o.grad_norm, 1e-6 * o.grad_norm);
  for (std::size_t i = 0; i < m.weights.size(); ++i) {
    const float w = m.master[i];
    const std::uint16_t expected = dtype == DType::bf16 ? bf16(w).bits : dtype == DType::f16 ? f16(w).bits : 0;
    ASSERT_EQ(m.weights[i], expected) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizer, OptimizerAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, optimizer_cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", optimizer_cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)));
                         });

TEST(OptimizerOp, PaddingStaysZero) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {sgd, adamw, lars, lamb}) {
    OptimizerMemory m(optimizer_spec(kind, DType::bf16));
    m.step();
    for (std::size_t i : {20011, 20031, 20075, 20095, 39096, 39999}) {
      EXPECT_EQ(m.master[i], 0) << i;
      EXPECT_EQ(m.weights[i], 0) << i;
    }
  }
}

TEST(OptimizerOp, ElementsOutsideOfTheSegmentsAreNotChanged) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {sgd, adamw, lars, lamb}) {
    OptimizerSpec s = optimizer_spec(kind, DType::bf16);
    OptimizerMemory m(s);
    s.segments = {{0, 4032, 0.01f}, {20096, 12, 0.1f}};  // the first ends within a chunk
    s.clip = 0.5f;
    m.op = backend().make_optimizer(s);
    for (auto* moment : {&m.moment1, &m.moment2}) std::fill(moment->begin(), moment->end(), 0.5f);
    std::fill(m.weights.begin(), m.weights.end(), std::uint16_t(7));
    m.gradient[5000] = NAN;  // no overflow
    const auto master = m.master.copy(), moment1 = m.moment1.copy(), moment2 = m.moment2.copy();
    m.step();
    EXPECT_EQ(m.state.found_inf, 0u);
    EXPECT_LT(m.state.grad_norm, 100);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < master.size(); ++i) {
      const bool inside = i < 4032 || (i >= 20096 && i < 20108);
      changed += inside && m.master[i] != master[i];
      if (inside) continue;
      ASSERT_EQ(m.master[i], master[i]) << i;
      ASSERT_EQ(m.weights[i], 7) << i;
      ASSERT_EQ(m.moment1[i], moment1[i]) << i;
      ASSERT_EQ(m.moment2[i], moment2[i]) << i;
    }
    EXPECT_GT(changed, 4000u);
  }
}

TEST(OptimizerOp, OverflowLeavesEverythingUntouched) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {sgd, adamw, lars, lamb})
    for (const float poison : {INFINITY, -INFINITY, NAN}) {
      OptimizerMemory m(optimizer_spec(kind, DType::bf16));
      m.state.loss_scale = 1024;
      m.state.scale_on = 1;
      m.step();
      const auto before = m.everything();
      m.gradient[39000] = poison;
      m.step();
      EXPECT_TRUE(m.everything() == before);
      EXPECT_EQ(m.state.loss_scale, 512);
      EXPECT_EQ(m.state.clean_steps, 0u);
      EXPECT_EQ(m.state.found_inf, 1u);
      EXPECT_EQ(m.state.applied, 1u);
      EXPECT_EQ(m.state.attempted, 2u);
      EXPECT_FALSE(std::isfinite(m.state.grad_norm));
    }
}

TEST(OptimizerOp, ForcedOverflowSkipsOneStep) {
  OptimizerMemory m(optimizer_spec());
  m.state.scale_on = 1;
  m.state.loss_scale = 4;
  m.state.force_inf = 1;
  const auto before = m.master.copy();
  m.step();
  EXPECT_EQ(m.master.copy(), before);
  EXPECT_EQ(m.state.force_inf, 0u);
  EXPECT_EQ(m.state.found_inf, 1u);
  EXPECT_EQ(m.state.loss_scale, 2);
  m.step();
  EXPECT_NE(m.master.copy(), before);
  EXPECT_EQ(m.state.found_inf, 0u);
}

TEST(OptimizerOp, LossScaleStopsAtItsFloor) {
  OptimizerMemory m(optimizer_spec());
  m.state.scale_on = 1;
  m.state.loss_scale = 0.75f;
  m.state.scale_floor = 0.5f;
  for (int i = 0; i < 3; ++i) {
    m.state.force_inf = 1;
    m.step();
  }
  EXPECT_EQ(m.state.loss_scale, 0.5f);
}

TEST(OptimizerOp, LossScaleNeverGrowsToInfinity) {
  OptimizerMemory m(optimizer_spec());
  m.state.scale_on = 1;
  m.state.loss_scale = 0x1p127f;
  m.state.scale_interval = 1;
  m.step();
  EXPECT_EQ(m.state.loss_scale, 0x1p127f);
}

TEST(OptimizerOp, OverflowWithoutLossScaleIsReportedAndSkipped) {
  OptimizerMemory m(optimizer_spec());
  m.gradient[7] = INFINITY;
  const auto before = m.master.copy();
  m.step();
  EXPECT_EQ(m.master.copy(), before);
  EXPECT_EQ(m.state.found_inf, 1u);
  EXPECT_EQ(m.state.loss_scale, 1);
  EXPECT_EQ(m.state.applied, 0u);
}

TEST(OptimizerOp, ResultsDoNotDependOnTheThreadCount) {
  const int threads = cpu::thread_count();
  using enum OptimizerSpec::Kind;
  for (const auto kind : {adamw, lars, lamb}) {
    std::vector<float> results[3];
    for (int i = 0; i < 3; ++i) {
      cpu::set_thread_count(i + 1);
      OptimizerSpec s = optimizer_spec(kind);
      s.clip = 0.1f;
      OptimizerMemory m(s);
      m.step();
      m.step();
      results[i] = m.master.copy();
      results[i].push_back(m.state.grad_norm);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
  cpu::set_thread_count(threads);
}

TEST(OptimizerOp, TrustRatioOfZeroWeightsIsOne) {
  using enum OptimizerSpec::Kind;
  for (const auto& [kind, same] : {std::pair{lars, sgd}, {lamb, adamw}}) {
    OptimizerMemory scaled(optimizer_spec(kind)), plain(optimizer_spec(same));
    for (const OptimizerMemory* m : {&scaled, &plain}) std::fill(m->master.begin(), m->master.end(), 0.0f);
    scaled.step();
    plain.step();
    expect_close(OptimizerMemory::doubles(scaled.master), OptimizerMemory::doubles(plain.master), 1e-6, "master");
  }
}

TEST(OptimizerOp, LarsAndLambStepsDoNotDependOnTheNormOfTheGradient) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {lars, lamb}) {
    OptimizerSpec s = optimizer_spec(kind);
    s.segments = {{0, optimizer_count, 1e-12f}};
    s.epsilon = 1e-30f;
    OptimizerMemory small(s), large(s);
    for (float& g : large.gradient) g *= 64;
    small.step();
    large.step();
    expect_close(OptimizerMemory::doubles(large.master), OptimizerMemory::doubles(small.master), 1e-6, "master");
  }
}

TEST(OptimizerOp, RejectsInvalidSegmentsAndShards) {
  OptimizerSpec s = optimizer_spec();
  s.segments[1].begin = 20000;
  EXPECT_THROW(backend().make_optimizer(s), Error);
  for (const auto& shards :
       {std::vector<OptimizerShard>{{0, 8192}, {4096, 4096}}, {{64, 4096}}, {{0, 4000}}, {{36864, 4096}}}) {
    s = optimizer_spec();
    s.shards = shards;
    EXPECT_THROW(backend().make_optimizer(s), Error);
  }
}

}  // namespace optimizer_test
}  // namespace millrace
