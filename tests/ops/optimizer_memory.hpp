// The memory that an optimizer works on, and one case for each kind of optimizer.
#pragma once
#include <memory>
#include <tuple>
#include <vector>

#include "reference/optimizer.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {

inline constexpr std::int64_t optimizer_count = 40000;  // several chunks, the last one incomplete

inline OptimizerSpec optimizer_spec(OptimizerSpec::Kind kind = OptimizerSpec::Kind::sgd, DType weights = DType::f32) {
  OptimizerSpec s;
  s.kind = kind;
  s.count = optimizer_count;
  s.stats_count = 37;
  s.weight_dtype = weights;
  s.segments = {{0, 20011, 0.01f}, {20032, 43, 0, 3}, {20096, 19000, 0.1f, 0.25f}};  // the gaps and the end are padding
  return s;
}

struct OptimizerMemory {
  explicit OptimizerMemory(const OptimizerSpec& s)
      : op(backend().make_optimizer(s)),
        master(in_segments(s, 1)),
        gradient(in_segments(s, 2)),
        moment1(kept(s)),
        moment2(kept(s)),
        average(kept(s)),
        running(floats(random_values(s.stats_count, 3))),
        stats(floats(random_values(s.stats_count, 4))),
        weights(std::size_t(s.count)) {
    state.learning_rate = 0.1f;
    state.row_weight = 0.25f;
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
    o.average = doubles(average);
    o.loss_scale = state.loss_scale;
    return o;
  }
  OptimizerArgs args(double* sums = nullptr) const {
    return {master.data(), weights.data(), gradient.data(), moment1.data(), moment2.data(),     running.data(),
            stats.data(),  state_.data(),  average.data(),  sums,           loss_weight.data(), gradient.data()};
  }
  // Runs work of the device on this memory.
  template <class Work>
  void run(const Work& work) const {
    const auto all =
        std::tie(master, gradient, moment1, moment2, average, running, stats, weights, state_, loss_weight);
    std::apply([](const auto&... v) { (v.to_device(), ...); }, all);
    work();
    device().synchronize();
    std::apply([](const auto&... v) { (v.to_host(), ...); }, all);
  }
  void step() {
    run([&] { op->step(args()); });
  }
  auto everything() const {
    return std::make_tuple(master.copy(), weights.copy(), moment1.copy(), moment2.copy(), running.copy(),
                           average.copy());
  }

  std::unique_ptr<OptimizerOp> op;
  DeviceVector<float> master, gradient, moment1, moment2, average, running, stats;
  DeviceVector<std::uint16_t> weights;
  DeviceVector<StepState> state_{std::vector<StepState>(1)};
  DeviceVector<double> loss_weight{std::vector<double>{10, 2, 0.5}};
  StepState& state = state_[0];
};

struct OptimizerCase {
  const char* name;
  OptimizerSpec spec;
};

inline const std::vector<OptimizerCase>& optimizer_cases() {
  static const std::vector<OptimizerCase> all = [] {
    using enum OptimizerSpec::Kind;
    std::vector<OptimizerCase> c{{"sgd_momentum", optimizer_spec()}, {"sgd_plain", optimizer_spec()},
                                 {"sgd_nesterov", optimizer_spec()}, {"sgd_clipped", optimizer_spec()},
                                 {"adamw", optimizer_spec(adamw)},   {"adamw_clipped", optimizer_spec(adamw)},
                                 {"lars", optimizer_spec(lars)},     {"lars_clipped", optimizer_spec(lars)},
                                 {"lamb", optimizer_spec(lamb)},     {"lamb_clipped", optimizer_spec(lamb)}};
    c[1].spec.momentum = 0;
    c[2].spec.nesterov = true;
    c[3].spec.clip = 0.5f;
    c[5].spec.clip = 0.01f;
    c[6].spec.trust_coefficient = 0.1f;
    c[7].spec.clip = 0.5f;
    c[7].spec.nesterov = true;
    c[9].spec.clip = 0.01f;
    c[3].spec.stats_count = 0;
    c[4].spec.own_momenta = {{0, 16, 0.1f}, {16, 5, 0.01f}, {21, 16, 1}};
    for (const std::size_t weighted : {3, 4, 7}) c[weighted].spec.loss_positions = 6;
    for (const std::size_t averaged : {0, 3, 5, 6, 9}) c[averaged].spec.average = 0.125f;
    return c;
  }();
  return all;
}

}  // namespace millrace::test
