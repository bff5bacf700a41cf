#include "millrace/model/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "millrace/comm/world.hpp"
#include "millrace/compute/compute.hpp"
#include "millrace/model/zoo.hpp"

namespace millrace {
namespace {

// A network with everything a program owns, in plain vectors: what the trainer's Network does, for tests of the model
// room alone.
struct Bench {
  std::unique_ptr<World> world = solo_world();
  Compute compute;
  std::unique_ptr<ParameterLayout> layout;
  std::unique_ptr<Program> program;
  std::vector<float> master, gradient, running, stats;
  Buffer arena, derived;
  StepState state;
  std::vector<std::uint8_t> x;
  std::vector<std::int32_t> y;
  std::vector<std::int64_t> ids;

  Bench(const ModelSpec& spec, std::int64_t rows, const Shape& sample, int fusion) {
    ComputeOptions options;
    options.placement.compute_threads = 2;
    compute = make_cpu_compute(*world, options);
    Graph graph = build_model(spec, {rows, sample, DType::u8, {}, true}, DType::f32, Mode::train);
    layout = std::make_unique<ParameterLayout>(graph);
    master.resize(std::size_t(layout->count)), gradient.resize(master.size());
    running.resize(std::size_t(layout->stats_count)), stats.resize(running.size());
    layout->initialise(graph, 7, master.data(), running.data());
    Lowered lowered = lower(*compute.backend, std::move(graph), fusion);
    arena = Buffer(*compute.device, MemoryKind::device, lowered.plan.arena_bytes);
    derived = Buffer(*compute.device, MemoryKind::device, lowered.plan.derived_bytes + 64);
    std::memset(arena.data(), 0xff, arena.bytes());  // NaN: what is read before it is written shows
    program = std::make_unique<Program>(std::move(lowered), *layout,
                                        ProgramMemory{arena.data(), derived.data(), master.data(), master.data(),
                                                      gradient.data(), running.data(), stats.data(), &state});
    std::mt19937 random(3);
    x.resize(std::size_t(rows * sample.count())), y.resize(std::size_t(rows)), ids.resize(std::size_t(rows));
    for (auto& v : x) v = std::uint8_t(random());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::int32_t(random() % 10), ids[i] = std::int64_t(i);
    state.row_weight = 1.0f / float(rows);
  }

  double run(bool first = true, GradSink* sink = nullptr) {
    state.loss_sum = 0, state.counted = state.top1 = state.top5 = 0;
    program->refresh_weights();
    const Graph& g = program->graph();
    program->forward({x.data(), DType::u8, g.values[Graph::x].shape}, {y.data(), DType::i32, {g.rows}},
                     {ids.data(), DType::i64, {g.rows}}, first);
    program->backward(first, sink);
    return state.loss_sum * double(state.row_weight);
  }
};

ModelSpec small_resnet() {
  ModelSpec spec;
  spec.name = "resnet", spec.depth = 8, spec.width = 4, spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}

TEST(Program, FusionLevelsGiveTheSameGradient) {
  Bench plain(small_resnet(), 5, {12, 10, 3}, 0), fused(small_resnet(), 5, {12, 10, 3}, 1);
  EXPECT_GT(plain.program->graph().nodes.size(), fused.program->graph().nodes.size() + 8);
  const double a = plain.run(), b = fused.run();
  EXPECT_NEAR(a, b, 1e-5 * std::abs(a));
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < plain.gradient.size(); ++i)
    error += std::pow(plain.gradient[i] - fused.gradient[i], 2), norm += std::pow(plain.gradient[i], 2);
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(error / norm), 1e-4);  // summation order in the norms differs
}

TEST(Program, GradientMatchesFiniteDifferences) {
  ModelSpec spec = small_resnet();
  Bench bench(spec, 4, {8, 8, 1}, 1);
  bench.run();
  const std::vector<float> gradient = bench.gradient;
  // Along random directions: float32 noise in single weights would drown the difference.
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const std::vector<float> start = bench.master;
  for (int trial = 0; trial < 3; ++trial) {
    std::vector<float> direction(start.size());
    double expected = 0;
    for (std::size_t p = 0; p < bench.layout->parameters.size(); ++p)
      for (std::int64_t i = 0; i < bench.layout->parameters[p].count; ++i) {
        const std::size_t at = std::size_t(bench.layout->parameters[p].begin + i);
        direction[at] = normal(random) / 30;
        expected += double(direction[at]) * double(gradient[at]);
      }
    const float h = 2e-3f;
    double loss[2];
    for (int side = 0; side < 2; ++side) {
      for (std::size_t i = 0; i < start.size(); ++i) bench.master[i] = start[i] + (side ? -h : h) * direction[i];
      loss[side] = bench.run();
    }
    const double found = (loss[0] - loss[1]) / (2 * double(h));
    EXPECT_NEAR(found, expected, 0.05 * std::abs(expected) + 2e-3) << trial;
  }
}

TEST(Program, SecondMicroBatchAddsToTheFirst) {
  Bench bench(small_resnet(), 3, {9, 7, 2}, 1);
  bench.run(true);
  const std::vector<float> once = bench.gradient, stats = bench.stats;
  bench.run(false);
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_NEAR(bench.gradient[i], 2 * once[i], 1e-6 + 1e-5 * std::abs(once[i]));
  for (std::size_t i = 0; i < stats.size(); ++i)
    EXPECT_NEAR(bench.stats[i], 2 * stats[i], 1e-6 + 1e-5 * std::abs(stats[i]));
}

TEST(Program, EveryElementOfTheGradientIsAnnouncedOnceLastFirst) {
  struct Sink : GradSink {
    std::vector<int> seen;
    std::int64_t first_begin = -1;
    void ready(std::int64_t begin, std::int64_t end) override {
      if (first_begin < 0) first_begin = begin;
      for (auto i = begin; i < end; ++i) ++seen[std::size_t(i)];
    }
  } sink;
  Bench bench(small_resnet(), 2, {8, 8, 3}, 1);
  sink.seen.resize(bench.gradient.size());
  bench.run(true, &sink);
  EXPECT_EQ(std::count(sink.seen.begin(), sink.seen.end(), 1), std::int64_t(sink.seen.size()));
  EXPECT_GT(sink.first_begin, std::int64_t(sink.seen.size()) * 9 / 10 - 64);
}

TEST(Plan, RegionsAliveTogetherNeverOverlap) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Region> regions;
    std::size_t together = 0;
    for (int r = 0; r < 40; ++r) {
      const int first = int(random() % 50), last = first + int(random() % 20);
      regions.push_back({"r", 64 * (1 + random() % 100), 0, first, last});
      together += regions.back().bytes;
    }
    const std::size_t total = place_regions(regions);
    EXPECT_LE(total, together);
    for (std::size_t a = 0; a < regions.size(); ++a) {
      EXPECT_LE(regions[a].offset + regions[a].bytes, total);
      for (std::size_t b = 0; b < a; ++b) {
        const Region &p = regions[a], &q = regions[b];
        const bool together_alive = p.first <= q.last && q.first <= p.last;
        EXPECT_TRUE(!together_alive || p.offset + p.bytes <= q.offset || q.offset + q.bytes <= p.offset);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
