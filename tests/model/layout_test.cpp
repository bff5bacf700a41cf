#include "millrace/model/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/model/zoo.hpp"

namespace millrace {
namespace layout_test {

Graph resnet(std::int64_t depth, const Shape& image, std::int64_t classes) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = depth;
  spec.outputs = classes;
  return build_model(spec, {2, image, DType::u8, {}, true}, DType::f32, Mode::train);
}

TEST(Layout, InitialValuesDependOnlyOnNameAndSeed) {
  const Graph g = resnet(8, {28, 28, 1}, 10);
  const ParameterLayout layout(g);
  std::vector<float> a(std::size_t(layout.count)), b(a), c(a), running(std::size_t(layout.stats_count));
  layout.initialise(g, 1, a.data(), running.data());
  layout.initialise(g, 1, b.data(), running.data());
  layout.initialise(g, 2, c.data(), running.data());
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  // The values reach the bound of PyTorch's default, 1/sqrt(fan_in), but do not exceed it.
  for (std::size_t p = 0; p < g.parameters.size(); ++p) {
    if (g.parameters[p].init != Parameter::Init::scaled_uniform) continue;
    const float bound = 1 / std::sqrt(float(g.parameters[p].fan_in));
    float most = 0;
    for (std::int64_t i = 0; i < layout.parameters[p].count; ++i)
      most = std::max(most, std::abs(a[std::size_t(layout.parameters[p].begin + i)]));
    EXPECT_LE(most, bound);
    if (layout.parameters[p].count > 100) {
      EXPECT_GT(most, 0.95f * bound) << g.parameters[p].name;
    }
  }
}

// In forward order in float32. In 16 bits the parameters that stay float32 come first.
TEST(Layout, ParametersThatAreReadAsFloat32ComeFirst) {
  Graph g = resnet(8, {28, 28, 1}, 10);
  const ParameterLayout whole(g);
  EXPECT_EQ(whole.f32_count, whole.count);
  for (std::size_t p = 1; p < g.parameters.size(); ++p)
    EXPECT_EQ(whole.parameters[p].begin, whole.parameters[p - 1].end);
  g.dtype = DType::bf16;
  const ParameterLayout mixed(g);
  EXPECT_EQ(mixed.count, whole.count);
  std::int64_t f32 = 0, rest = mixed.f32_count;
  for (std::size_t p = 0; p < g.parameters.size(); ++p) {
    std::int64_t& next = g.parameters[p].matrix ? rest : f32;
    EXPECT_EQ(mixed.parameters[p].begin, next) << g.parameters[p].name;
    next = mixed.parameters[p].end;
  }
  EXPECT_EQ(f32, mixed.f32_count);
  EXPECT_EQ(rest, mixed.count);
}

TEST(Layout, OnlyMatricesDecay) {
  Graph g = resnet(8, {28, 28, 1}, 10);
  g.dtype = DType::f16;  // not in forward order
  const ParameterLayout layout(g);
  std::int64_t covered = 0;
  for (const auto& s : layout.segments(default_rules(g, 0.5f))) {
    EXPECT_EQ(s.begin, covered);
    covered += s.count;
    for (std::size_t p = 0; p < g.parameters.size(); ++p) {
      const std::int64_t begin = layout.parameters[p].begin;
      if (begin < s.begin || begin >= s.begin + s.count) continue;
      EXPECT_EQ(s.weight_decay, g.parameters[p].matrix ? 0.5f : 0.0f) << g.parameters[p].name;
    }
  }
  EXPECT_EQ(covered, layout.count);
}

TEST(Layout, FrozenParametersAreInNoSegmentAndOtherRatesApart) {
  for (const auto kind : {OptimizerSpec::Kind::sgd, OptimizerSpec::Kind::lamb}) {
    const Graph g = resnet(8, {28, 28, 1}, 10);
    const ParameterLayout layout(g);
    std::vector<ParameterRule> rules = default_rules(g, 0.5f);
    for (std::size_t p = 0; p < rules.size(); ++p) {
      rules[p].frozen = p % 5 == 2 || p + 1 == rules.size();
      rules[p].lr_factor = p % 3 ? 1.0f : 0.25f;
      if (p % 7 == 3) rules[p].weight_decay = 0.125f;
    }
    OptimizerSpec optimizer;
    optimizer.kind = kind;
    const auto segments = layout.segments(rules, optimizer);
    for (std::size_t p = 0; p < rules.size(); ++p) {
      const auto& slot = layout.parameters[p];
      const auto covers = [&](const OptimizerSegment& s) {
        return s.begin < slot.end && s.begin + s.count > slot.begin;
      };
      ASSERT_EQ(std::ranges::count_if(segments, covers), rules[p].frozen ? 0 : 1) << g.parameters[p].name;
      if (rules[p].frozen) continue;
      const OptimizerSegment& s = *std::ranges::find_if(segments, covers);
      EXPECT_TRUE(s.begin <= slot.begin && s.begin + s.count >= slot.end) << g.parameters[p].name;
      EXPECT_EQ(s.weight_decay, rules[p].weight_decay) << g.parameters[p].name;
      EXPECT_EQ(s.lr_factor, rules[p].lr_factor) << g.parameters[p].name;
    }
  }
}

TEST(Layout, LarsGivesEachMatrixItsOwnSegment) {
  Graph g = resnet(8, {28, 28, 1}, 10);
  for (auto& p : g.parameters) p.matrix = true;  // without LARS, all would share one segment
  const ParameterLayout layout(g);
  OptimizerSpec optimizer;
  EXPECT_EQ(layout.segments(default_rules(g, 0.5f), optimizer).size(), 1u);
  optimizer.kind = OptimizerSpec::Kind::lars;
  const auto segments = layout.segments(default_rules(g, 0.5f), optimizer);
  ASSERT_EQ(segments.size(), g.parameters.size());
  for (std::size_t p = 0; p < segments.size(); ++p) EXPECT_EQ(segments[p].begin, layout.parameters[p].begin);
}

TEST(Layout, MuonGivesEachMatrixItsOwnSegment) {
  ModelSpec spec;
  spec.name = "gpt2";
  spec.tokens = true;
  spec.outputs = 96;
  ModelBatch batch;
  batch.rows = 2;
  batch.sample = {24};
  batch.x_dtype = DType::u16;
  batch.target = {24};
  const Graph g = build_model(spec, batch, DType::bf16, Mode::train);
  auto rules = default_rules(g, 0.5f);
  add_matrices(g, rules);
  const ParameterLayout layout(g);
  OptimizerSpec optimizer;
  optimizer.kind = OptimizerSpec::Kind::muon;
  const auto segments = layout.segments(rules, optimizer);
  std::size_t matrices = 0;
  for (std::size_t p = 0; p < rules.size(); ++p) {
    const Parameter& parameter = g.parameters[p];
    // The table of the embedding is the weight of the last layer, too.
    const bool expected = parameter.matrix && parameter.name != "wte.weight" && parameter.name != "wpe.weight";
    EXPECT_EQ(rules[p].rows > 0, expected) << parameter.name;
    if (!expected) continue;
    ++matrices;
    const auto found = std::ranges::find(segments, layout.parameters[p].begin, &OptimizerSegment::begin);
    ASSERT_NE(found, segments.end()) << parameter.name;
    EXPECT_EQ(found->rows, parameter.shape[0]) << parameter.name;
    EXPECT_EQ(found->rows * found->columns, parameter.shape.count()) << parameter.name;
    EXPECT_EQ(found->count, parameter.shape.count()) << parameter.name;
  }
  EXPECT_EQ(matrices, 4u * 4);  // four blocks
  EXPECT_EQ(std::ranges::count_if(segments, [](const auto& s) { return s.rows > 0; }), 16);
}

}  // namespace layout_test
}  // namespace millrace
