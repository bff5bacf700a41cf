// Networks with lines `loss`.
#include <gtest/gtest.h>

#include <bit>

#include "support/expect_error.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace losses_test {

using namespace test;

// A label, two targets, a yes or no, and many targets.
const std::vector<LossTarget> columns{{"kind", 0, 1, 3}, {"energy", 1, 2, 0}, {"hit", 3, 1, 2}, {"vector", 4, 64, 0}};

// With the columns that the lines name, all of them if they name none.
std::vector<LossTarget> named_columns(const std::vector<std::string>& layers) {
  std::vector<LossTarget> out;
  std::int64_t begin = 0;
  for (LossTarget column : columns) {
    const auto names = [&](const std::string& line) { return line.find("y=" + column.name) != line.npos; };
    if (std::ranges::none_of(layers, names)) continue;
    column.begin = begin;
    begin += column.count;
    out.push_back(column);
  }
  return out.empty() ? columns : out;
}

ModelSpec network(std::vector<std::string> layers, std::vector<LossTarget> targets) {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = std::move(layers);
  spec.layers.insert(spec.layers.begin(), {"linear 16", "gelu as=trunk"});
  spec.targets = std::move(targets);
  spec.own_losses = true;
  spec.input.scale = 1 / 255.0f;
  return spec;
}
ModelSpec network(const std::vector<std::string>& layers) { return network(layers, named_columns(layers)); }

struct Bench : CpuContext, ProgramFixture {
  static constexpr std::int64_t rows = 6;
  static ModelBatch batch_of(const std::vector<LossTarget>& targets) {
    std::int64_t width = 0;
    for (const LossTarget& t : targets) width += t.count;
    const bool label = targets.size() == 1 && targets[0].classes > 0;
    return {rows, {9}, DType::u8, label ? Shape{} : Shape{width}, label};
  }
  explicit Bench(const ModelSpec& spec, int fusion = 1, DType dtype = DType::f32)
      : ProgramFixture(*compute.device, *compute.backend, spec, batch_of(spec.targets), fusion, dtype) {
    std::size_t at = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (const LossTarget& t : spec.targets)
        for (std::int64_t i = 0; i < t.count; ++i)
          y[at++] = t.classes == 3   ? std::int32_t(r % 3)
                    : t.classes == 2 ? std::int32_t(r / 2 % 2)
                                     : std::bit_cast<std::int32_t>(i == 0 ? float(r) - 2 : 0.5f * float(r));
  }
  // Of the parameters whose names begin so.
  std::vector<float> gradient_of(const std::string& layer) const {
    const Graph& graph = program->graph();
    std::vector<float> out;
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      if (const auto& slot = layout->parameters[p]; graph.parameters[p].name.starts_with(layer + "."))
        out.insert(out.end(), gradient.begin() + slot.begin, gradient.begin() + slot.begin + slot.count);
    return out;
  }
};

const std::vector<std::string> three_heads{"linear 3 as=a",
                                           "loss cross_entropy y=kind label_smoothing=0.1 as=kind",
                                           "linear 2 from=trunk as=b",
                                           "loss mse y=energy weight=0.25 as=energy",
                                           "linear 1 from=trunk as=c",
                                           "loss binary_cross_entropy y=hit weight=3 as=hit"};

// Each loss has the weights of the network with three.
TEST(Losses, TheGradientIsTheSumOfThoseOfTheLossesByTheirWeights) {
  Bench all(network(three_heads));
  all.run();
  std::vector<float> sum(all.gradient_of("linear1").size());
  double factor = 1;
  for (const std::size_t head : {0u, 1u, 2u}) {
    Bench one(network({three_heads[2 * head], three_heads[2 * head + 1]}));
    const auto number_of = [&](const std::string& name) {
      return std::size_t(std::ranges::find(all.program->graph().parameters, name, &Parameter::name) -
                         all.program->graph().parameters.begin());
    };
    for (std::size_t p = 0; p < one.layout->parameters.size(); ++p) {
      const auto &to = one.layout->parameters[p],
                 &from = all.layout->parameters[number_of(one.program->graph().parameters[p].name)];
      std::copy_n(all.master.begin() + from.begin, from.count, one.master.begin() + to.begin);
    }
    one.run();
    factor = head == 0 ? 1 : head == 1 ? 0.25 : 3;
    const LossSums &mine = all.state.losses[head], &alone = one.state.losses[0];
    EXPECT_NEAR(mine.sum, alone.sum, 1e-5 * alone.sum);
    EXPECT_EQ(mine.weight, double(Bench::rows));
    EXPECT_EQ(mine.top1, alone.top1);
    const auto shared = one.gradient_of("linear1");
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += shared[i];
    const std::string layer(1, "abc"[head]);
    EXPECT_LT(relative_error(all.gradient_of(layer), one.gradient_of(layer)), 1e-6) << layer;
    // With the weight 1, the gradient is the same but for the weight.
    std::string line = three_heads[2 * head + 1];
    if (const auto at = line.find(" weight="); at != std::string::npos) line.erase(at, line.find(' ', at + 1) - at);
    Bench plain(network({three_heads[2 * head], line}));
    plain.master = one.master;
    plain.run();
    EXPECT_LT(relative_error(one.gradient_of(layer), plain.gradient_of(layer), factor), 1e-6) << layer;
  }
  EXPECT_LT(relative_error(all.gradient_of("linear1"), sum), 1e-6);
}

TEST(Losses, LevelsOfFusionAndSixteenBitsAgree) {
  Bench plain(network(three_heads), 0);
  plain.run();
  for (const int level : {1, 2, 3}) {
    Bench fused(network(three_heads), level);
    fused.run();
    EXPECT_LT(relative_error(fused.gradient_by_parameter(), plain.gradient_by_parameter()), 1e-5) << level;
  }
  Bench half(network(three_heads), 1, DType::bf16);
  half.run();
  EXPECT_LT(relative_error(half.gradient_by_parameter(), plain.gradient_by_parameter(), 256), 0.02);
}

// Both losses of a result would write its gradient. A result with a loss may have further readers.
TEST(Losses, AResultMayHaveTwoLossesAndOtherReaders) {
  const auto with = [](const std::string& second) {
    return network(
        {"linear 2 as=b", "loss mse y=energy as=one", second, "relu", "linear 3", "loss cross_entropy y=kind"});
  };
  Bench twice(with("loss mse y=energy weight=2 as=two")), once(with("loss mse y=energy weight=1e-9 as=two"));
  twice.run();
  once.run();
  EXPECT_EQ(twice.state.losses[0].sum, twice.state.losses[1].sum);
  Bench three(
      network({"linear 2 as=b", "loss mse y=energy weight=3", "relu", "linear 3", "loss cross_entropy y=kind"}));
  three.run();
  EXPECT_LT(relative_error(twice.gradient_by_parameter(), three.gradient_by_parameter()), 1e-6);
  EXPECT_GT(relative_error(twice.gradient_by_parameter(), once.gradient_by_parameter()), 0.1);
}

// The logits of the second loss are computed in chunks, but not if another loss reads what they are made of.
TEST(Losses, ChunksOfLogitsAndRecomputationChangeNothing) {
  const std::vector<std::string> apart{"linear 2 as=b", "loss mse y=energy", "linear 64 from=trunk",
                                       "tanh as=wide",  "linear 64 as=c",    "loss cross_entropy y=kind"};
  const std::vector<std::string> same{"linear 64", "tanh", "loss mse y=vector", "linear 64 as=c",
                                      "loss cross_entropy y=kind"};
  for (const bool chunked : {true, false}) {
    const ModelSpec spec = network(chunked ? apart : same);
    Bench plain(spec);
    struct Small : CpuContext, ProgramFixture {
      Small(const ModelSpec& of, const std::function<void(Graph&)>& adjust)
          : ProgramFixture(*compute.device, *compute.backend, of, Bench::batch_of(of.targets), 1, DType::f32, adjust) {}
    };
    Small chunks(spec, [](Graph& graph) { graph.logits_memory = 600; });
    Small again(spec, [](Graph& graph) { graph.recompute = Recompute::full; });
    const double expected = plain.run();
    for (Small* other : {&chunks, &again}) {
      other->y = plain.y;
      EXPECT_NEAR(other->run(), expected, 1e-6 * expected);
      EXPECT_LT(relative_error(other->gradient_by_parameter(), plain.gradient_by_parameter()), 1e-5);
    }
    const auto& last = chunks.program->graph().nodes.back().spec;
    EXPECT_EQ(std::holds_alternative<LinearCrossEntropySpec>(last), chunked);
  }
}

TEST(Losses, OneTargetNeedsNoName) {
  ModelSpec spec = network({"linear 4", "loss smooth_l1 beta=0.5 as=first", "loss mae"}, {{"y", 0, 4, 0}});
  Bench bench(spec);
  bench.run();
  EXPECT_EQ(bench.program->graph().losses().size(), 2u);
  EXPECT_EQ(bench.state.losses[1].weight, double(Bench::rows));
}

TEST(Losses, WhatCannotBeIsRefused) {
  const auto refuse = [](std::vector<std::string> layers, const char* words,
                         std::vector<LossTarget> targets = columns) {
    expect_error(Exit::config, words, [&] { Bench bench(network(std::move(layers), std::move(targets))); });
  };
  refuse({"linear 3", "loss cross_entropy y=kinds"},
         "data.y has no data set 'kinds'. it has kind, energy, hit, vector");
  refuse({"linear 3", "loss cross_entropy"}, "choose one of them with y= (kind, energy, hit, vector)");
  refuse({"linear 2", "loss cross_entropy y=kind"},
         "reads a result of 6x2, but 'kind' needs 6x3. put `linear 3` before it");
  refuse({"linear 2", "loss cross_entropy y=energy"}, "'energy' holds floating-point targets, not labels");
  refuse({"linear 3", "loss mse y=kind"}, "'kind' holds labels. use cross_entropy");
  refuse({"linear 1", "loss binary_cross_entropy y=kind"}, "'kind' has labels up to 2");
  refuse({"linear 3", "loss mse y=energy"}, "reads a result of 6x3, but 'energy' needs 6x2");
  refuse({"linear 3", "loss mse 0.1 y=energy"}, "has a word too many, '0.1'");
  refuse({"linear 3", "loss cross_entropy y=kind std=1"}, "has no weights for std=");
  refuse({"linear 3", "loss cross_entropy y=kind"}, "no line `loss KIND y=energy` compares with 'energy'");
  refuse({"linear outputs", "loss cross_entropy y=kind"}, "give a number in place of `outputs`");
  refuse({"linear 3", "loss hinge y=kind"}, "unknown loss 'hinge'. use cross_entropy, mse");
  refuse({"linear 3", "loss cross_entropy y=kind weight=0"}, "weight");
  refuse({"linear 3", "loss cross_entropy y=kind beta=1"}, "beta");
  refuse({"linear 3", "loss cross_entropy y=kind", "linear 2"}, "no layer reads the result", {{"kind", 0, 1, 3}});
  refuse({"repeat 9 {", "linear 4", "loss mse", "}"}, "too many losses (at most 8 are possible)", {{"y", 0, 4, 0}});
}

}  // namespace losses_test
}  // namespace millrace
