// The optimizer muon: matrices that are tall, wide and square, beside parameters that are updated as by adamw.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cpu/common/threads.hpp"
#include "ops/optimizer_memory.hpp"
#include "support/expect_error.hpp"

namespace millrace {
namespace muon_test {

using namespace test;

// Each matrix has several chunks, but for the last one, which fits into one block of rows. The sizes of two are not
// multiples of a pack.
OptimizerSpec muon_spec(DType weights = DType::f32) {
  OptimizerSpec s;
  s.kind = OptimizerSpec::Kind::muon;
  s.momentum = 0.95f;
  s.nesterov = true;
  s.count = 40000;
  s.stats_count = 37;
  s.weight_dtype = weights;
  s.segments = {{0, 201 * 45, 0.01f, 1, 201, 45},        {9088, 1000, 0.1f, 2},
                {10112, 70 * 131, 0.1f, 0.25f, 70, 131}, {19328, 43},
                {19392, 97 * 97, 0, 1, 97, 97},          {28864, 33 * 3, 0.1f, 1, 33, 3}};
  return s;
}

void expect_steps_to_match(const OptimizerSpec& s) {
  OptimizerMemory m(s);
  m.state.learning_rate = 0.02f;
  m.state.loss_scale = 8;
  m.state.scale_on = 1;
  m.state.scale_interval = 2;
  auto o = m.reference();
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < m.gradient.size(); ++i) m.gradient[i] *= (step + i) % 2 ? -1.1f : 1.3f;
    reference::optimizer_step(s, m.state, o, OptimizerMemory::doubles(m.gradient), OptimizerMemory::doubles(m.stats));
    m.step();
  }
  EXPECT_EQ(m.state.applied, 3u);
  // float32: five Newton-Schulz steps multiply small singular values, and so their errors, by up to 3.4^5 = 490.
  expect_close(OptimizerMemory::doubles(m.master), o.master, 2e-5, "master");
  expect_close(OptimizerMemory::doubles(m.moment1), o.moment1, 1e-6, "moment1");
  expect_close(OptimizerMemory::doubles(m.moment2), o.moment2, 1e-6, "moment2");
  if (s.average > 0) expect_close(OptimizerMemory::doubles(m.average), o.average, 2e-5, "average");
  for (std::size_t i = 0; i < m.weights.size(); ++i) {
    const float w = m.master[i];
    const std::uint16_t expected = s.weight_dtype == DType::bf16  ? bf16(w).bits
                                   : s.weight_dtype == DType::f16 ? f16(w).bits
                                                                  : 0;
    ASSERT_EQ(m.weights[i], expected) << i;
  }
}

TEST(OptimizerMuon, StepsMatchReference) {
  using enum OptimizerSpec::MuonScale;
  for (const auto scale : {match_rms_adamw, original, spectral_unclamped}) {
    OptimizerSpec s = muon_spec();
    s.muon_scale = scale;
    expect_steps_to_match(s);
  }
  for (const DType dtype : {DType::bf16, DType::f16}) expect_steps_to_match(muon_spec(dtype));
  OptimizerSpec s = muon_spec();
  s.nesterov = false;
  s.average = 0.125f;
  s.clip = 0.5f;
  s.newton_schulz_steps = 2;
  expect_steps_to_match(s);
}

TEST(OptimizerMuon, SingularValuesComeNearOne) {
  OptimizerSpec s = muon_spec();
  s.segments = {{0, 40 * 100, 0, 1, 40, 100}};
  s.muon_scale = OptimizerSpec::MuonScale::original;
  OptimizerMemory m(s);
  m.state.learning_rate = 1;
  std::fill(m.master.begin(), m.master.end(), 0.0f);
  m.step();
  const Values update = {m.master.begin(), m.master.begin() + 4000};
  const Values gram = reference::product(update, reference::transposed(update, 40, 100), 40, 100);
  double trace = 0;
  for (std::size_t i = 0; i < 40; ++i) trace += gram[i * 40 + i];
  EXPECT_NEAR(trace / 40, 1, 0.35);  // squares of singular values between 0.7 and 1.2
}

TEST(OptimizerMuon, AZeroGradientOnlyDecaysTheWeights) {
  OptimizerMemory m(muon_spec());
  std::fill(m.gradient.begin(), m.gradient.end(), 0.0f);
  const auto before = m.master.copy();
  m.step();
  EXPECT_EQ(m.state.found_inf, 0u);
  for (const OptimizerSegment& s : muon_spec().segments)
    for (std::int64_t i = s.begin; i < s.begin + s.count; ++i)
      ASSERT_FLOAT_EQ(m.master[std::size_t(i)],
                      before[std::size_t(i)] * (1 - m.state.learning_rate * s.lr_factor * s.weight_decay))
          << i;
}

TEST(OptimizerMuon, TinyAndHugeGradientsGiveTheSameStep) {
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    OptimizerSpec s = muon_spec();
    s.segments = {{0, 201 * 45, 0.01f, 1, 201, 45}};
    OptimizerMemory m(s);
    for (float& g : m.gradient) g *= i == 0 ? 0x1p-10f : 0x1p20f;
    m.step();
    results[i] = m.master.copy();
  }
  EXPECT_EQ(results[0], results[1]);  // powers of two
}

TEST(OptimizerMuon, PaddingStaysZero) {
  OptimizerMemory m(muon_spec(DType::bf16));
  m.step();
  m.step();
  for (std::size_t i : {9045, 9047, 9087, 28801, 28803, 28863, 28963, 39999}) {
    EXPECT_EQ(m.master[i], 0) << i;
    EXPECT_EQ(m.weights[i], 0) << i;
    EXPECT_EQ(m.moment1[i], 0) << i;
  }
}

TEST(OptimizerMuon, OverflowLeavesEverythingUntouched) {
  OptimizerMemory m(muon_spec(DType::bf16));
  m.step();
  const auto before = m.everything();
  m.gradient[19500] = NAN;
  m.step();
  EXPECT_TRUE(m.everything() == before);
  EXPECT_EQ(m.state.found_inf, 1u);
  m.gradient[19500] = 1;
  m.step();
  EXPECT_EQ(m.state.applied, 2u);
  for (const float w : m.master.copy()) ASSERT_TRUE(std::isfinite(w));
}

TEST(OptimizerMuon, ResultsDoNotDependOnTheThreadCount) {
  const int threads = cpu::thread_count();
  std::vector<float> results[3];
  for (int i = 0; i < 3; ++i) {
    cpu::set_thread_count(i + 1);
    OptimizerMemory m(muon_spec());
    m.step();
    m.step();
    results[i] = m.master.copy();
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  cpu::set_thread_count(threads);
}

TEST(OptimizerMuon, AMatrixOfAnotherSizeIsRefused) {
  OptimizerSpec s = muon_spec();
  s.segments[0].columns = 44;
  expect_error(Exit::internal, "is not a matrix of 201 x 44", [&] { backend().make_optimizer(s); });
}

}  // namespace muon_test
}  // namespace millrace
