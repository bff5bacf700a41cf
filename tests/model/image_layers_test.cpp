// Layers for images and volumes: transposed convolutions, group norms, squeeze and excitation, reshapes.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/expect_error.hpp"
#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace image_layers_test {

using namespace test;

ModelSpec layers(const std::vector<std::string>& lines) {
  ModelSpec spec;
  spec.name = "layers";
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  spec.layers = lines;
  return spec;
}
Graph graph_of(const ModelSpec& spec, const Shape& sample, Mode mode = Mode::train) {
  return build_model(spec, {2, sample, DType::u8, {}, true}, DType::f32, mode);
}

struct Bench : CpuContext, ProgramFixture {
  Bench(const ModelSpec& spec, const Shape& sample, int fusion = 0)
      : ProgramFixture(*compute.device, *compute.backend, spec, 5, sample, fusion) {}
  bool has_memory_for(const std::string& name) const {
    return std::ranges::any_of(program->plan().regions, [&](const Region& r) { return r.name == name; });
  }
};

TEST(ImageLayers, TextGivesTheDocumentedOperations) {
  const Graph g = graph_of(layers({"conv 8 3 stride=2 pad=same", "groupnorm 4 epsilon=1e-3", "relu as=skip",
                                   "convt 6 3 stride=2 pad=1 output_pad=1 bias=on", "instancenorm", "se 3 as=se",
                                   "reshape 8x16x3", "channels_to_axis", "axis_to_channels", "globalpool as=mean",
                                   "conv 3 1 from=skip", "scale_by mean", "linear outputs"}),
                           {8, 8, 3});
  EXPECT_EQ(describe_function(g),
            (std::vector<std::string>{
                "input = input(x) scale=0.00392156886, offset=0 -> 1x8x8x3",
                "conv1 = conv(input) 8 3x3 stride=2x2 pad=1x1 dilation=1x1 groups=1 bias=off -> 1x4x4x8",
                "groupnorm1 = group_norm(conv1) groups=4 epsilon=0.001 -> 1x4x4x8",
                "skip = activation(groupnorm1) relu -> 1x4x4x8",
                "convt1 = transposed_conv(skip) 6 3x3 stride=2x2 pad=1x1 dilation=1x1 output_pad=1 groups=1 bias=on -> "
                "1x8x8x6",
                "instancenorm1 = group_norm(convt1) groups=6 epsilon=1e-05 -> 1x8x8x6",
                "se.avgpool = pool(instancenorm1) global average -> 1x6",
                "se.fc1 = linear(se.avgpool) 2 bias=on -> 1x2",
                "se.activation = activation(se.fc1) relu -> 1x2",
                "se.fc2 = linear(se.activation) 6 bias=on -> 1x6",
                "se.scale_activation = activation(se.fc2) sigmoid -> 1x6",
                "se = scale_by(instancenorm1, se.scale_activation) -> 1x8x8x6",
                "reshape1 = reshape(se) -> 1x8x16x3",
                "channels_to_axis1 = reshape(reshape1) -> 1x8x16x3x1",
                "axis_to_channels1 = reshape(channels_to_axis1) -> 1x8x16x3",
                "mean = pool(axis_to_channels1) global average -> 1x3",
                "conv2 = conv(skip) 3 1x1 stride=1x1 pad=0x0 dilation=1x1 groups=1 bias=off -> 1x4x4x3",
                "scale_by1 = scale_by(conv2, mean) -> 1x4x4x3",
                "linear1 = linear(scale_by1) 10 bias=on -> 1x10",
                "loss = cross_entropy(linear1, y) -> 1x10",
            }));
  const auto weight = std::ranges::find(g.parameters, "convt1.weight", &Parameter::name);
  ASSERT_NE(weight, g.parameters.end());
  EXPECT_EQ(weight->shape, (Shape{8, 3, 3, 6}));
  EXPECT_EQ(weight->fan_in, 3 * 3 * 6) << "as PyTorch counts it";
}

TEST(ImageLayers, SlopesBelowZeroAreLearnedOrConstant) {
  const Graph g = graph_of(layers({"conv 6 3", "prelu", "prelu slopes=one init=0.5 as=one", "leaky_relu slope=0.125",
                                   "leaky_relu", "linear outputs"}),
                           {4, 4, 3});
  const std::vector<std::string> lines = describe_function(g);
  EXPECT_EQ(lines[2], "prelu1 = prelu(conv1) slopes=6 -> 1x2x2x6");
  EXPECT_EQ(lines[3], "one = prelu(prelu1) slopes=1 -> 1x2x2x6");
  EXPECT_EQ(lines[4], "leaky_relu1 = prelu(one) slope=0.125 -> 1x2x2x6");
  EXPECT_EQ(lines[5], "leaky_relu2 = activation(leaky_relu1) leaky_relu -> 1x2x2x6");
  const auto slope = std::ranges::find(g.parameters, "one.weight", &Parameter::name);
  ASSERT_NE(slope, g.parameters.end());
  EXPECT_EQ(slope->shape, Shape{1});
  EXPECT_EQ(slope->init_value, 0.5);
  EXPECT_FALSE(slope->matrix);  // no weight decay
}

TEST(ImageLayers, WhatDoesNotFitIsRefused) {
  for (const auto& [line, message] :
       {std::pair{"groupnorm 3", "3 groups do not divide the channels of an input of 2x8x8x8"},
        {"groupnorm", "needs a number of groups"},
        {"convt 8 3 output_pad=1", "output_pad 1 must be below the stride 1"},
        {"convt 8 2 pad=2", "pad=2 is too large for its kernel"},
        {"convt 9 3 groups=2", "2 groups do not divide both 8 input channels and 9 output channels"},
        {"prelu slopes=two", "slopes"},
        {"se 9", "the reduction must be from 1 to the number of channels, 8"},
        {"reshape 8x8x4", "its extents must multiply to the 512 values of each sample"},
        {"scale_by input", "must have one value for each channel"},
        {"channels_to_axis as=volume", ""}}) {
    const ModelSpec spec = layers({"conv 8 3 pad=same", line, "globalpool", "linear outputs"});
    if (*message == 0)
      graph_of(spec, {8, 8, 3});
    else
      expect_error(Exit::config, message, [&] { graph_of(spec, {8, 8, 3}); });
  }
  expect_error(Exit::config, "as many axes as are possible", [] {
    graph_of(layers({"channels_to_axis", "channels_to_axis", "linear outputs"}), {8, 8, 3});
  });
  expect_error(Exit::config, "has no axis but the channels", [] {
    graph_of(layers({"globalpool", "axis_to_channels", "linear outputs"}), {8, 8, 3});
  });
}

// Roy et al. 2019, table 1: Indian Pines.
TEST(ImageLayers, HybridSNHasThePublishedParameterCount) {
  ModelSpec spec;
  spec.name = "hyperspectral";
  spec.outputs = 16;
  spec.dropout = 0.4f;
  const Graph g = graph_of(spec, {25, 25, 30});
  EXPECT_EQ(g.parameter_count(), 5122176);
  EXPECT_EQ(std::ranges::count_if(g.nodes, [](const Node& n) { return std::holds_alternative<DropoutSpec>(n.spec); }),
            2);
}

// The layers of the Keras code of MLPerf HPC for 128x128x128x4 and 4 targets, from the first to the last.
TEST(ImageLayers, CosmoFlowHasTheParametersOfMlperf) {
  ModelSpec spec;
  spec.name = "cosmoflow";
  spec.outputs = 4;
  spec.pointwise_loss = PointwiseLossSpec::Kind::mse;
  spec.dropout = 0.5f;
  const Graph g = build_model(spec, {1, {128, 128, 128, 4}, DType::f32, {4}, false}, DType::f32, Mode::train);
  EXPECT_EQ(g.parameter_count(),
            3488 + 55360 + 221312 + 884992 + 3539456 + (4 * 4 * 4 * 512 + 1) * 128 + 129 * 64 + 65 * 4);
  EXPECT_EQ(g.parameter_count(), 8907556);
}

TEST(ImageLayers, ReshapesShareTheMemoryOfTheirSource) {
  const std::vector<std::string> plain{"conv 8 3 pad=same", "relu", "conv 8 3 pad=same", "relu", "linear outputs"};
  std::vector<std::string> viewed = plain;
  viewed.insert(viewed.begin() + 2, {"channels_to_axis as=a", "axis_to_channels as=b"});
  for (const int level : {0, 1, 3}) {
    Bench one(layers(plain), {8, 6, 3}, level), other(layers(viewed), {8, 6, 3}, level);
    for (const bool first : {true, false}) {
      EXPECT_EQ(one.run(first), other.run(first));
      EXPECT_EQ(one.gradient, other.gradient);
    }
    EXPECT_TRUE(other.has_memory_for("relu1") && other.has_memory_for("relu1.diff"));
    for (const char* name : {"a", "b", "a.diff", "b.diff"}) EXPECT_FALSE(other.has_memory_for(name)) << name;
    EXPECT_EQ(one.program->plan().arena_bytes, other.program->plan().arena_bytes);
  }
}

// Then the gradients of the readers have memory of their own.
TEST(ImageLayers, ReshapesOfAValueWithOtherReaders) {
  const std::vector<std::string> plain{"conv 8 3 pad=same", "relu as=r", "conv 8 3 pad=same", "add r",
                                       "linear outputs"};
  std::vector<std::string> viewed{"conv 8 3 pad=same",    "relu as=r", "conv 8 3 pad=same", "reshape 6x8x8 as=a",
                                  "reshape 6x8x8 from=r", "add a",     "linear outputs"};
  for (const int level : {0, 1, 3}) {
    Bench one(layers(plain), {8, 6, 3}, level), other(layers(viewed), {8, 6, 3}, level);
    for (const bool first : {true, false}) {
      EXPECT_EQ(one.run(first), other.run(first));
      EXPECT_LT(relative_error(other.gradient, one.gradient), 1e-6);
    }
  }
}

// A transposed convolution shares nothing with the norms around it; the fused operations beside it stay correct.
TEST(ImageLayers, NetworksAreTheSameAtEveryFusionLevel) {
  const ModelSpec spec =
      layers({"conv 8 3 stride=2 pad=same", "batchnorm", "relu", "convt 8 2 stride=2", "batchnorm", "relu as=up",
              "convt 8 3 pad=1 bias=on", "groupnorm 2", "se 4", "add up", "relu", "globalpool", "linear outputs"});
  Bench plain(spec, {8, 6, 3}, 0);
  for (const int level : {1, 2, 3}) {
    Bench fused(spec, {8, 6, 3}, level);
    for (const bool first : {true, false}) {
      const double a = plain.run(first);
      EXPECT_NEAR(a, fused.run(first), 1e-5 * std::abs(a)) << level;
      EXPECT_LT(relative_error(fused.gradient, plain.gradient), 1e-4) << level;
    }
  }
}

}  // namespace image_layers_test
}  // namespace millrace
