#include "millrace/model/zoo.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/model/layout.hpp"

namespace millrace {
namespace zoo_test {

Graph resnet(std::int64_t depth, const Shape& image, std::int64_t classes) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = depth;
  spec.outputs = classes;
  return build_model(spec, {2, image, DType::u8, {}, true}, DType::f32, Mode::train);
}

Graph layers(std::vector<std::string> lines, const Shape& sample = {8, 8, 3}, std::int64_t outputs = 10,
             bool tokens = false) {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = std::move(lines);
  spec.outputs = outputs;
  spec.tokens = tokens;
  return build_model(spec, {2, sample, tokens ? DType::u16 : DType::f32, {}, true}, DType::f32, Mode::train);
}

std::string refusal(std::vector<std::string> lines, bool tokens = false) {
  try {
    layers(std::move(lines), tokens ? Shape{6} : Shape{8, 8, 3}, 10, tokens);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    return e.what();
  }
  return "accepted";
}

TEST(Zoo, ResNetsHaveThePublishedParameterCounts) {
  EXPECT_EQ(resnet(50, {224, 224, 3}, 1000).parameter_count(), 25557032);  // this and the next two: torchvision
  EXPECT_EQ(resnet(18, {224, 224, 3}, 1000).parameter_count(), 11689512);
  EXPECT_EQ(resnet(34, {224, 224, 3}, 1000).parameter_count(), 21797672);
  EXPECT_EQ(resnet(18, {32, 32, 3}, 10).parameter_count(), 11173962);  // 3x3 stem
  // He et al. state 0.27 M for depth 20 with parameter-free shortcuts. The two projections here add 2560 + 192.
  EXPECT_EQ(resnet(20, {32, 32, 3}, 10).parameter_count(), 272474);
}

TEST(Zoo, ResNet50TakesFourGigaMultiplyAdds) {
  // torchvision states 4.09 GMAC. The graph has two rows, and a multiply-add counts as two operations.
  EXPECT_NEAR(resnet(50, {224, 224, 3}, 1000).forward_flops() / 2 / 2, 4.09e9, 0.03e9);
}

TEST(Zoo, FirstConvolutionNeedsNoInputGradient) {
  const Graph g = resnet(8, {28, 28, 1}, 10);
  int without = 0;
  for (const auto& n : g.nodes)
    if (const auto* conv = std::get_if<ConvSpec>(&n.spec)) without += !conv->need_diff_src;
  EXPECT_EQ(without, 1);
}

TEST(Zoo, TextNetworkWithASkipConnectionHasTheExpectedShape) {
  const Graph g = layers({"conv 16 3 pad=same as=a", "batchnorm", "relu", "conv 16 3x3 pad=1", "add a", "maxpool 2",
                          "globalpool", "linear outputs"});
  EXPECT_EQ(g.nodes[g.nodes.size() - 2].dst, int(g.values.size()) - 1);
  EXPECT_EQ(g.values.back().shape, (Shape{2, 10}));
  EXPECT_EQ(g.parameter_count(), 3 * 9 * 16 + 32 + 16 * 9 * 16 + 160 + 10);
}

TEST(Zoo, TextNetworkAcceptsEveryActivation) {
  for (const auto& expected : activations) {
    if (expected.kind == Activation::none) continue;
    const Graph g = layers({"linear 12", expected.name, "linear outputs"});
    const auto* activation = std::get_if<ActivationSpec>(&g.nodes[2].spec);
    ASSERT_TRUE(activation) << expected.name;
    EXPECT_EQ(activation->kind, expected.kind);
  }
}

TEST(Zoo, ErrorsInATextNetworkStateTheReason) {
  EXPECT_NE(refusal({"convv 3"}).find("unknown layer 'convv'"), std::string::npos);
  EXPECT_NE(refusal({"conv 16 3 pads=1"}).find("'pads' is not an option"), std::string::npos);
  EXPECT_NE(refusal({"add nowhere"}).find("no earlier line has as=nowhere"), std::string::npos);
  EXPECT_EQ(
      refusal({"conv 4 3", "conv 16 9", "linear 10"}),
      "model: layer 'conv2' (`conv 16 9`): conv: a window of 9 does not fit into input 2x6x6x4 along spatial axis 0. "
      "use a smaller window or more padding");
  EXPECT_EQ(refusal({"conv 4 3 bias=True", "linear 10 bias=OFF"}), "accepted");
  EXPECT_NE(refusal({"linear 10 bias=maybe"}).find("bias=maybe must be on or off"), std::string::npos);
  EXPECT_NE(refusal({"linear 7"}).find("linear 10"), std::string::npos);
  EXPECT_NE(refusal({"conv 16 3 groups=2", "linear 10"}).find("groups"), std::string::npos);
  EXPECT_NE(refusal({"dropout 1.5", "linear 10"}).find("probability"), std::string::npos);
  EXPECT_NE(refusal({}).find("model.layers"), std::string::npos);
}

TEST(Zoo, NumbersWithoutMeaningAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"dropout nan", "'nan' is not a probability"},
      {"dropout 0.5x", "'0.5x' is not a probability"},
      {"conv 4 3 stride=0", "stride=0 is out of range (must be at least 1)"},
      {"conv 4 3 dilation=0", "dilation=0 is out of range"},
      {"conv 4 3 pad=3", "pad=3 is too large for its kernel (at most 2)"},
      {"conv 4 3 pad=99999999", "pad=99999999 is too large"},
      {"maxpool 2 pad=5", "pad=5 is too large for its kernel (at most 1)"},
      {"conv 4611686018427387904 3", "'4611686018427387904' is too large (at most 2147483647)"},
      {"conv 2147483647 9999999 pad=same", "would have"},
      {"linear 2147483647", "accepted"}};
  for (const auto& [line, words] : cases) {
    const std::string message = refusal({line, "globalpool", "linear 10"});
    if (words == std::string("accepted")) continue;
    EXPECT_NE(message.find(words), std::string::npos) << line << ": " << message;
  }
  EXPECT_NE(refusal({"linear 2147483647", "linear 2147483647", "linear 10"}).find("2147483647x2147483647 values"),
            std::string::npos);
  layers({"conv 4 3 pad=2", "maxpool 3 pad=1", "avgpool 2 pad=1", "globalpool", "linear 10"});
}

TEST(Zoo, ANetworkOfTooManyLayersIsRefusedAtOnce) {
  EXPECT_NE(refusal(std::vector<std::string>(20000, "relu")).find("too many layers (at most 5000"), std::string::npos);
}

TEST(Zoo, OnlyEmbeddingsAcceptTokens) {
  const Graph g = layers({"embedding 5", "linear 12", "tanh", "linear outputs"}, {6}, 10, true);
  EXPECT_EQ(g.parameter_count(), 10 * 5 + 6 * 5 * 12 + 12 + 12 * 10 + 10);
  EXPECT_EQ(g.nodes[0].src, (std::vector<int>{Graph::x}));  // no input pass normalises the tokens
  EXPECT_EQ(g.values[std::size_t(g.nodes[0].dst)].shape, (Shape{2, 6, 5}));
  EXPECT_EQ(layers({"embedding 5 vocabulary=11", "linear outputs"}, {6}, 10, true).parameters[0].shape, (Shape{11, 5}));
  EXPECT_NE(refusal({"embedding 5 vocabulary=9", "linear outputs"}, true).find("tokens up to 9"), std::string::npos);
  EXPECT_NE(refusal({"linear outputs"}, true).find("which only `embedding WIDTH` accepts"), std::string::npos);
  EXPECT_NE(refusal({"embedding 5", "embedding 5"}, true).find("accepts only the samples"), std::string::npos);
  EXPECT_NE(refusal({"embedding 5", "linear outputs"}).find("data.sample = tokens"), std::string::npos);
}

TEST(Zoo, RecurrentLayersHaveTheWeightsOfPyTorch) {
  const Graph g =
      layers({"lstm 6 layers=2 bidirectional dropout=0.1 as=rnn", "gru 5 bias=off", "linear outputs"}, {7, 3});
  std::set<std::string> names;
  for (const Parameter& p : g.parameters) {
    names.insert(p.name + " " + p.shape.str());
    if (p.name.starts_with("rnn.")) {
      EXPECT_EQ(p.init, Parameter::Init::scaled_uniform) << p.name;
      EXPECT_EQ(p.fan_in, 6) << p.name;
    }
  }
  for (const char* name : {"rnn.weight_ih_l0 24x3", "rnn.weight_hh_l0_reverse 24x6", "rnn.bias_ih_l1 24",
                           "rnn.weight_ih_l1_reverse 24x12", "gru1.weight_ih_l0 15x12", "gru1.weight_hh_l0 15x5"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(names.size(), 16u + 2 + 2);
  EXPECT_EQ(std::ranges::count_if(g.nodes, [](const Node& n) { return n.name == "rnn.dropout1"; }), 1);
  const auto refused = [](const std::string& line) { return refusal({"embedding 4", line, "linear outputs"}, true); };
  EXPECT_NE(refused("lstm 4 dropout=0.5").find("add layers=2"), std::string::npos);
  EXPECT_NE(refused("gru 0").find("at least 1"), std::string::npos);
  EXPECT_NE(refused("gru").find("a number of units"), std::string::npos);
  EXPECT_NE(refused("lstm 4 reverse").find("'reverse' is not an option of lstm"), std::string::npos);
  EXPECT_NE(refused("lstm 4 heads=2").find("'heads' is not an option"), std::string::npos);
  EXPECT_NE(refusal({"lstm 4", "linear outputs"}).find("needs time steps x features"), std::string::npos);
  EXPECT_NE(refusal({"lstm 4", "linear outputs"}, true).find("which only `embedding WIDTH` accepts"),
            std::string::npos);
}

const std::vector<std::string> small_gpt{"embedding 8 std=0.02 as=wte",
                                         "positions std=0.02 as=wpe",
                                         "repeat 3 as=h {",
                                         "residual {",
                                         "layernorm as=ln_1",
                                         "linear 24 axis=last as=attn.c_attn",
                                         "attention heads=2 causal as=attn",
                                         "linear 8 axis=last std=0.01 as=attn.c_proj",
                                         "}",
                                         "residual {",
                                         "layernorm as=ln_2",
                                         "linear 32 axis=last",
                                         "gelu_tanh",
                                         "linear 8 axis=last",
                                         "}",
                                         "}",
                                         "layernorm as=ln_f",
                                         "linear outputs axis=last bias=off weights=wte"};

Graph token_network(const std::vector<std::string>& lines) {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = lines;
  spec.tokens = true;
  spec.outputs = 11;
  return build_model(spec, {.rows = 2, .sample = {6}, .x_dtype = DType::u8, .target = {6}, .labels = true}, DType::f32,
                     Mode::train);
}

TEST(Zoo, BlocksRepeatTheirLinesUnderNamesOfTheirOwn) {
  const Graph g = token_network(small_gpt);
  const std::int64_t block = 2 * 16 + 24 * 9 + 8 * 9 + 32 * 9 + 8 * 33;
  EXPECT_EQ(g.parameter_count(), 11 * 8 + 6 * 8 + 3 * block + 16);  // the last layer has the weights of the first
  std::set<std::string> names;
  for (const Parameter& p : g.parameters) names.insert(p.name);
  EXPECT_EQ(names.size(), g.parameters.size());
  for (const char* name : {"wte.weight", "wpe.weight", "h.0.ln_1.bias", "h.2.attn.c_proj.weight", "h.1.linear3.weight",
                           "h.1.linear4.weight", "ln_f.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(g.nodes.back().src[0], int(g.values.size()) - 1);
  EXPECT_EQ(g.values.back().shape, (Shape{2, 6, 11}));
  EXPECT_EQ(g.nodes[g.nodes.size() - 2].weight, g.nodes[0].weight);
}

TEST(Zoo, WeightsOfANormalDistributionHaveItsDeviation) {
  const Graph g = layers({"linear 300 std=0.02", "relu", "linear outputs"}, {40, 40, 1}, 10);
  const ParameterLayout layout(g);
  std::vector<float> values(std::size_t(layout.count)), running(std::size_t(layout.stats_count));
  layout.initialise(g, 1, values.data(), running.data());
  double sum = 0, squares = 0, fourth = 0;
  const auto& weight = layout.parameters[0];
  for (std::int64_t i = weight.begin; i < weight.begin + weight.count; ++i) {
    const double v = double(values[std::size_t(i)]) / 0.02;
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  const double n = double(weight.count);  // 480,000: the errors of these means are 0.0014, 0.002 and 0.014
  EXPECT_NEAR(sum / n, 0, 0.006);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_NEAR(fourth / n, 3, 0.06);
  for (std::int64_t i = layout.parameters[1].begin; i < layout.parameters[1].begin + 300; ++i)
    EXPECT_EQ(values[std::size_t(i)], 0);
}

TEST(Zoo, BrokenBlocksAreRefused) {
  const auto refused = [](std::vector<std::string> lines) {
    lines.insert(lines.begin(), "embedding 8");
    try {
      token_network(lines);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refused({"repeat 2 {", "relu"}).find("close it with a line `}`"), std::string::npos);
  EXPECT_NE(refused({"relu", "}"}).find("no block is open"), std::string::npos);
  EXPECT_NE(refused({"repeat 2", "relu", "}"}).find("begins with `{`"), std::string::npos);
  EXPECT_NE(refused({"relu {", "}"}).find("only repeat and residual"), std::string::npos);
  EXPECT_NE(refused({"repeat 0 {", "relu", "}"}).find("at least 1"), std::string::npos);
  EXPECT_NE(refused({"repeat 2 {", "relu as=a", "}", "add a"}).find("no earlier line has as=a"), std::string::npos);
  EXPECT_NE(refused({"residual {", "linear 9 axis=last", "}"}).find("shapes must be equal"), std::string::npos);
  EXPECT_NE(refused({"attention heads=3 causal"}).find("does not hold 3 heads"), std::string::npos);
  EXPECT_NE(refused({"attention causaal"}).find("'causaal' is not an option"), std::string::npos);
  EXPECT_NE(refused({"linear outputs axis=last weights=nothing"}).find("no other layer 'nothing' has weights"),
            std::string::npos);
  EXPECT_NE(refused({"linear outputs"}).find("2x6x11"), std::string::npos);
}

}  // namespace zoo_test
}  // namespace millrace
