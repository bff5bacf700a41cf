// Compares the optimizers with PyTorch's and timm's, whose weights tests/parity/record.py has recorded in float64.
#include <gtest/gtest.h>

#include "support/forwarding_backend.hpp"
#include "support/muon_keys.hpp"
#include "support/recorded.hpp"

namespace millrace {
namespace optimizer_parity_test {

using namespace test;
using nlohmann::json;

constexpr std::int64_t matrix_count = 40, vector_count = 8, count = 128;  // of the flat buffers: two slots of 64

OptimizerSpec spec_of(const json& c) {
  OptimizerSpec s;
  if (c["name"] == "muon") {
    s = muon_spec(c);
  } else {
    using enum OptimizerSpec::Kind;
    const std::string name = c["name"];
    s.kind = name == "sgd" ? sgd : name == "lars" ? lars : name == "lamb" ? lamb : adamw;
    s.trust_coefficient = c.value("trust", 0.001f);
    s.momentum = c.value("momentum", 0.0f);
    s.nesterov = c.value("nesterov", false);
  }
  s.beta1 = c.value("beta1", 0.9f);
  s.beta2 = c.value("beta2", 0.999f);
  s.epsilon = c.value("epsilon", 1e-8f);
  s.clip = c["clip"];
  s.average = c.contains("ema") ? float(1 - c["ema"].get<double>()) : 0;
  s.count = count;
  s.segments = {{0, 64, c["weight_decay"]}, {64, 64, 0}};
  if (c.contains("shape")) s.segments[0] = {0, matrix_count, c["weight_decay"], 1, c["shape"][0], c["shape"][1]};
  return s;
}

// The matrix begins at element 0, and the vector at element 64.
void fill(std::vector<float>& values, const std::string& suffix, float by) {
  const Sequence matrix("matrix" + suffix), vector("vector" + suffix);
  for (std::int64_t i = 0; i < matrix_count; ++i) values[std::size_t(i)] = by * float(matrix.uniform(i));
  for (std::int64_t i = 0; i < vector_count; ++i) values[std::size_t(64 + i)] = by * float(vector.uniform(i));
}

void expect_near(const std::vector<float>& values, const json& expected, double tolerance) {
  ASSERT_EQ(expected.size(), std::size_t(matrix_count + vector_count));
  for (std::int64_t i = 0; i < matrix_count + vector_count; ++i) {
    const std::int64_t at = i < matrix_count ? i : 64 + i - matrix_count;
    EXPECT_NEAR(values[std::size_t(at)], expected[std::size_t(i)].get<double>(), tolerance) << i;
  }
}

TEST(OptimizerParity, WeightsAndAveragesAreThoseOfPyTorch) {
  CpuContext cpu;
  const json file = recorded("optimizers.json");
  ASSERT_EQ(file["cases"].size(), 15u);
  for (const json& c : file["cases"]) {
    SCOPED_TRACE(c["optim"].dump());
    const OptimizerSpec spec = spec_of(c["optim"]);
    // float32, 30 steps. Newton-Schulz steps multiply errors of small singular values by up to 490.
    const double tolerance = spec.kind == OptimizerSpec::Kind::muon ? 1e-5 : 2e-6;
    const auto optimizer = cpu.compute.backend->make_optimizer(spec);
    std::vector<float> master(count), gradient(count), moment1(count), moment2(count), average;
    StepState state;
    state.learning_rate = c["optim"]["lr"];
    fill(master, "", 1);
    average = master;
    for (int step = 0; step < 30; ++step) {
      fill(gradient, " " + std::to_string(step), float(1 + step % 3));
      OptimizerArgs args;
      args.master = master.data();
      args.gradient = gradient.data();
      args.moment1 = moment1.data();
      args.moment2 = moment2.data();
      args.state = &state;
      if (spec.average > 0) args.average = average.data();
      optimizer->step(args);
      if (const auto key = std::to_string(step + 1); c["weights"].contains(key))
        expect_near(master, c["weights"][key], tolerance);
    }
    if (spec.average > 0) expect_near(average, c["averages"], tolerance);
  }
}

}  // namespace optimizer_parity_test
}  // namespace millrace
