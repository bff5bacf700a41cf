#include "reference/optimizer.hpp"

#include <omp.h>

#include "support/op_harness.hpp"

namespace millrace {
namespace {

using namespace test;

constexpr std::int64_t count = 40000;  // several chunks, the last one incomplete

OptimizerSpec spec(OptimizerSpec::Kind kind = OptimizerSpec::Kind::sgd, DType weights = DType::f32) {
  OptimizerSpec s;
  s.kind = kind;
  s.count = count;
  s.stats_count = 37;
  s.weight_dtype = weights;
  s.segments = {{0, 20011, 0.01f}, {20032, 43, 0}, {20096, 19000, 0.1f}};  // the gaps and the end are padding
  return s;
}

struct Memory {
  explicit Memory(const OptimizerSpec& s)
      : op(backend().make_optimizer(s)),
        master(in_segments(s, 1)),
        gradient(in_segments(s, 2)),
        moment1(kept(s)),
        moment2(kept(s)),
        running(floats(random_values(s.stats_count, 3))),
        stats(floats(random_values(s.stats_count, 4))),
        weights(std::size_t(s.count)) {
    state.learning_rate = 0.1f;
  }
  static std::size_t kept(const OptimizerSpec& s) {
    std::int64_t count = s.shards.empty() ? s.count : 0;
    for (const auto& shard : s.shards) count += shard.count;
    return std::size_t(count);
  }
  static std::vector<float> floats(const Values& v) { return {v.begin(), v.end()}; }
  static Values doubles(const DeviceVector<float>& v) { return {v.begin(), v.end()}; }
  static std::vector<float> in_segments(const OptimizerSpec& s, std::uint64_t seed) {
    std::vector<float> v(std::size_t(s.count), 0.0f);
    const Values random = random_values(s.count, seed);
    for (const auto& segment : s.segments)
      for (std::int64_t i = segment.begin; i < segment.begin + segment.count; ++i)
        v[std::size_t(i)] = float(random[std::size_t(i)]);
    return v;
  }
  reference::OptimizerState reference() const {
    reference::OptimizerState o;
    o.master = doubles(master);
    o.moment1 = doubles(moment1);
    o.moment2 = doubles(moment2);
    o.running = doubles(running);
    o.loss_scale = state.loss_scale;
    return o;
  }
  void step() {
    op->step({master.data(), weights.data(), gradient.data(), moment1.data(), moment2.data(), running.data(),
              stats.data(), &state});
    device().synchronize();
  }
  auto everything() const {
    return std::make_tuple(master.copy(), weights.copy(), moment1.copy(), moment2.copy(), running.copy());
  }

  std::unique_ptr<OptimizerOp> op;
  DeviceVector<float> master, gradient, moment1, moment2, running, stats;
  DeviceVector<std::uint16_t> weights;
  DeviceVector<StepState> state_{std::vector<StepState>(1)};
  StepState& state = state_[0];
};

struct Case {
  const char* name;
  OptimizerSpec spec;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    using enum OptimizerSpec::Kind;
    std::vector<Case> c{{"sgd_momentum", spec()},    {"sgd_plain", spec()},        {"sgd_nesterov", spec()},
                        {"sgd_clipped", spec()},     {"adamw", spec(adamw)},       {"adamw_clipped", spec(adamw)},
                        {"lars", spec(lars)},        {"lars_clipped", spec(lars)}, {"lamb", spec(lamb)},
                        {"lamb_clipped", spec(lamb)}};
    c[1].spec.momentum = 0;
    c[2].spec.nesterov = true;
    c[3].spec.clip = 0.5f;
    c[5].spec.clip = 0.01f;
    c[6].spec.trust_coefficient = 0.1f;
    c[7].spec.clip = 0.5f;
    c[7].spec.nesterov = true;
    c[9].spec.clip = 0.01f;
    c[3].spec.stats_count = 0;
    return c;
  }();
  return all;
}

class OptimizerAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(OptimizerAgainstReference, FiveStepsMatch) {
  const auto [index, dtype] = GetParam();
  OptimizerSpec s = cases()[index].spec;
  s.weight_dtype = dtype;
  Memory m(s);
  if (s.moment_count() == 2) m.state.learning_rate = 0.01f;
  m.state.loss_scale = 8;
  m.state.scale_on = 1;
  m.state.scale_interval = 3;
  auto o = m.reference();
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < m.gradient.size(); ++i) m.gradient[i] *= step % 2 ? -1.1f : 1.3f;
    reference::optimizer_step(s, m.state, o, Memory::doubles(m.gradient), Memory::doubles(m.stats));
    m.step();
  }
  // float32 arithmetic, five steps.
  expect_close(Memory::doubles(m.master), o.master, 1e-6, "master");
  expect_close(Memory::doubles(m.moment1), o.moment1, 1e-6, "moment1");
  expect_close(Memory::doubles(m.moment2), o.moment2, 1e-6, "moment2");
  if (s.stats_count) expect_close(Memory::doubles(m.running), o.running, 1e-6, "running");
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
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return cat(cases()[std::get<0>(info.param)].name, "_", name_of(std::get<1>(info.param)));
                         });

TEST(OptimizerOp, PaddingStaysZero) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {sgd, adamw, lars, lamb}) {
    Memory m(spec(kind, DType::bf16));
    m.step();
    for (std::size_t i : {20011, 20031, 20075, 20095, 39096, 39999}) {
      EXPECT_EQ(m.master[i], 0) << i;
      EXPECT_EQ(m.weights[i], 0) << i;
    }
  }
}

TEST(OptimizerOp, OverflowLeavesEverythingUntouched) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {sgd, adamw, lars, lamb})
    for (const float poison : {INFINITY, -INFINITY, NAN}) {
      Memory m(spec(kind, DType::bf16));
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
  Memory m(spec());
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
  Memory m(spec());
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
  Memory m(spec());
  m.state.scale_on = 1;
  m.state.loss_scale = 0x1p127f;
  m.state.scale_interval = 1;
  m.step();
  EXPECT_EQ(m.state.loss_scale, 0x1p127f);
}

TEST(OptimizerOp, OverflowWithoutLossScaleIsReportedAndSkipped) {
  Memory m(spec());
  m.gradient[7] = INFINITY;
  const auto before = m.master.copy();
  m.step();
  EXPECT_EQ(m.master.copy(), before);
  EXPECT_EQ(m.state.found_inf, 1u);
  EXPECT_EQ(m.state.loss_scale, 1);
  EXPECT_EQ(m.state.applied, 0u);
}

TEST(OptimizerOp, ResultsDoNotDependOnTheThreadCount) {
  const int threads = omp_get_max_threads();
  using enum OptimizerSpec::Kind;
  for (const auto kind : {adamw, lars, lamb}) {
    std::vector<float> results[3];
    for (int i = 0; i < 3; ++i) {
      omp_set_num_threads(i + 1);
      OptimizerSpec s = spec(kind);
      s.clip = 0.1f;
      Memory m(s);
      m.step();
      m.step();
      results[i] = m.master.copy();
      results[i].push_back(m.state.grad_norm);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
  omp_set_num_threads(threads);
}

TEST(OptimizerOp, TrustRatioOfZeroWeightsIsOne) {
  using enum OptimizerSpec::Kind;
  for (const auto& [kind, same] : {std::pair{lars, sgd}, {lamb, adamw}}) {
    Memory scaled(spec(kind)), plain(spec(same));
    for (const Memory* m : {&scaled, &plain}) std::fill(m->master.begin(), m->master.end(), 0.0f);
    scaled.step();
    plain.step();
    expect_close(Memory::doubles(scaled.master), Memory::doubles(plain.master), 1e-6, "master");
  }
}

TEST(OptimizerOp, LarsAndLambStepsDoNotDependOnTheNormOfTheGradient) {
  using enum OptimizerSpec::Kind;
  for (const auto kind : {lars, lamb}) {
    OptimizerSpec s = spec(kind);
    s.segments = {{0, count, 1e-12f}};
    s.epsilon = 1e-30f;
    Memory small(s), large(s);
    for (float& g : large.gradient) g *= 64;
    small.step();
    large.step();
    expect_close(Memory::doubles(large.master), Memory::doubles(small.master), 1e-6, "master");
  }
}

TEST(OptimizerOp, RejectsInvalidSegmentsAndShards) {
  OptimizerSpec s = spec();
  s.segments[1].begin = 20000;
  EXPECT_THROW(backend().make_optimizer(s), Error);
  for (const auto& shards :
       {std::vector<OptimizerShard>{{0, 8192}, {4096, 4096}}, {{64, 4096}}, {{0, 4000}}, {{36864, 4096}}}) {
    s = spec();
    s.shards = shards;
    EXPECT_THROW(backend().make_optimizer(s), Error);
  }
}

// Three ranks with uneven shards. The shard of the last rank has no parameters. The sums of squares are added between
// the phases.
TEST(OptimizerOp, ShardedStepEqualsTheUnshardedStepBitForBit) {
  constexpr std::int64_t unit = OptimizerSpec::chunk_size, padded = 12 * unit;
  const std::vector<std::vector<OptimizerShard>> ranks{
      {{0, 2 * unit}, {5 * unit, unit}}, {{2 * unit, 3 * unit}, {6 * unit, 4 * unit}}, {{10 * unit, 2 * unit}}};
  for (const Case& c : cases()) {
    OptimizerSpec s = c.spec;
    s.count = padded;
    Memory whole(s);
    std::vector<std::unique_ptr<Memory>> parts;
    std::vector<DeviceVector<double>> sums;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      s.shards = ranks[r];
      parts.push_back(std::make_unique<Memory>(s));
      sums.emplace_back(std::vector<double>(std::size_t(square_sum_count(s)), 7.0));
    }
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {  // only the rank that owns the element sees the overflow
        whole.gradient[25000] = INFINITY;
        parts[1]->gradient[25000] = INFINITY;
      }
      if (step == 3) {
        whole.gradient[25000] = 1;
        parts[1]->gradient[25000] = 1;
      }
      whole.step();
      for (int phase = 0; phase < parts[0]->op->phases(); ++phase) {
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          Memory& m = *parts[r];
          m.op->run(phase, {m.master.data(), m.weights.data(), m.gradient.data(), m.moment1.data(), m.moment2.data(),
                            m.running.data(), m.stats.data(), &m.state, sums[r].data()});
        }
        device().synchronize();
        for (std::size_t i = 0; i < sums[0].size(); ++i) {
          const double sum = sums[0][i] + sums[1][i] + sums[2][i];
          for (auto& of_rank : sums) of_rank[i] = sum;
        }
      }
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Memory& m = *parts[r];
      EXPECT_EQ(m.state.grad_norm, whole.state.grad_norm) << c.name;
      EXPECT_EQ(m.state.applied, 3u) << c.name;
      EXPECT_EQ(m.running.copy(), whole.running.copy()) << c.name;
      std::size_t kept = 0;
      for (const auto& shard : ranks[r]) {
        const std::size_t begin = std::size_t(shard.begin), bytes = std::size_t(shard.count) * 4;
        EXPECT_EQ(std::memcmp(&m.master[begin], &whole.master[begin], bytes), 0) << c.name;
        EXPECT_EQ(std::memcmp(&m.moment1[kept], &whole.moment1[begin], bytes), 0) << c.name;
        EXPECT_EQ(std::memcmp(&m.moment2[kept], &whole.moment2[begin], bytes), 0) << c.name;
        kept += std::size_t(shard.count);
      }
    }
    Memory untouched(c.spec);
    EXPECT_EQ(parts[0]->master[25000], untouched.master[25000]) << "element of another rank";
  }
}

}  // namespace
}  // namespace millrace
