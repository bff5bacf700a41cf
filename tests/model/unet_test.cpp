// U-Net, and networks with a label at each position.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/model/zoo.hpp"
#include "support/expect_error.hpp"

namespace millrace {
namespace unet_test {

using test::expect_error;

ModelSpec unet(std::int64_t outputs) {
  ModelSpec spec;
  spec.name = "unet";
  spec.outputs = outputs;
  return spec;
}
Graph build(const ModelSpec& spec, const Shape& sample, const Shape& target, Mode mode = Mode::train) {
  return build_model(spec, {2, sample, DType::u8, target, true}, DType::f32, mode);
}

// github.com/milesial/Pytorch-UNet, UNet(n_channels, n_classes, bilinear=True).
TEST(UNet, HasThePublishedParameterCounts) {
  EXPECT_EQ(build(unet(2), {64, 48, 3}, {64, 48}).parameter_count(), 17263042);
  EXPECT_EQ(build(unet(2), {32, 32, 1}, {32, 32}).parameter_count(), 17261890);
  EXPECT_EQ(build(unet(21), {32, 32, 3}, {32, 32}).parameter_count(), 17264277);
}

// UNet(n_channels, n_classes, bilinear=False), the article's up-convolutions.
TEST(UNet, HasThePublishedParameterCountsWithTransposedConvolutions) {
  ModelSpec spec = unet(2);
  spec.transposed = true;
  EXPECT_EQ(build(spec, {64, 48, 3}, {64, 48}).parameter_count(), 31037698);
  spec.outputs = 1;
  EXPECT_EQ(build(spec, {64, 48, 3}, {64, 48}).parameter_count(), 31037633);
}

TEST(UNet, JoinsTheLevelsOfImagesAndVolumes) {
  for (const Shape& sample : {Shape{16, 24, 3}, Shape{8, 16, 24, 2}, Shape{32, 2}}) {
    Shape target = sample;
    --target.rank;
    ModelSpec spec = unet(5);
    spec.blocks = 2;
    spec.width = 4;
    const Graph g = build(spec, sample, target);
    std::vector<std::string> joined;
    for (const Node& node : g.nodes)
      if (std::holds_alternative<ConcatSpec>(node.spec)) {
        const Shape& shape = g.values[std::size_t(node.dst)].shape;
        joined.push_back(fmt::format("{} {}", shape[1], shape[-1]));
        EXPECT_EQ(g.values[std::size_t(node.src[0])].shape, g.values[std::size_t(node.src[1])].shape);
        EXPECT_TRUE(g.values[std::size_t(node.src[1])].name.starts_with("up")) << "the skipped value comes first";
      }
    EXPECT_EQ(joined, (std::vector<std::string>{fmt::format("{} 16", sample[0] / 2), fmt::format("{} 8", sample[0])}));
    const Shape logits = g.values[std::size_t(g.nodes.back().src[0])].shape;
    EXPECT_EQ(logits[-1], 5);
    EXPECT_EQ(logits.count(), 2 * target.count() * 5);
  }
  ModelSpec spec = unet(3);
  EXPECT_EQ(build(spec, {8, 16, 8, 1}, {8, 16, 8}).parameters[0].shape, (Shape{32, 3, 3, 3, 1}));
  EXPECT_EQ(build(spec, {16, 16, 1}, {16, 16}).parameters[0].shape, (Shape{64, 3, 3, 1}));
}

TEST(UNet, WhatDoesNotFitIsRefused) {
  expect_error(Exit::config,
               "halves its input 4 times (model.blocks), but the samples are 24x32x3: 24 is not a multiple", [] {
                 build(unet(2), {24, 32, 3}, {24, 32});
               });
  expect_error(Exit::config, "unet needs a label at each position, stored as maps of integers. data.y holds one label",
               [] {
                 build(unet(2), {32, 32, 3}, {});
               });
  expect_error(Exit::config, "data.y holds floating-point targets", [] {
    ModelSpec spec = unet(1024);
    spec.pointwise_loss = PointwiseLossSpec::Kind::mse;
    build_model(spec, {2, {32, 32, 3}, DType::u8, {32, 32}, false}, DType::f32, Mode::train);
  });
  ModelSpec spec = unet(4);
  spec.name = "layers";
  const auto refusal = [&](std::vector<std::string> lines, const char* words) {
    spec.layers = std::move(lines);
    expect_error(Exit::config, words, [&] { build(spec, {8, 8, 3}, {8, 8}); });
  };
  refusal({"conv 8 3", "globalpool", "linear outputs"},
          "the shape 2x4, but the data needs 2x8x8x4 (rows x positions x classes). end with `conv 4 1 bias=on`");
  refusal({"conv 4 3"}, "the shape 2x6x6x4, but the data needs 2x8x8x4");
  spec.layers = {"conv 8 3 pad=same", "relu", "conv outputs"};
  EXPECT_EQ(build(spec, {8, 8, 3}, {8, 8}).nodes.size(), 5u);
}

// Labels are moved by the same input pass, in front of the loss, and only where pixels move.
TEST(UNet, LabelsMoveWithTheImages) {
  ModelSpec spec = unet(4);
  spec.blocks = 1;
  const auto mover = [&](Mode mode) -> const MoveLabelsSpec* {
    static Graph g;
    g = build(spec, {12, 12, 3}, {12, 12}, mode);
    const auto found = std::ranges::find_if(
        g.nodes, [](const Node& node) { return std::holds_alternative<MoveLabelsSpec>(node.spec); });
    if (found == g.nodes.end()) {
      EXPECT_EQ(g.nodes.back().src[1], Graph::y);
      return nullptr;
    }
    EXPECT_EQ(g.nodes.back().src[1], found->dst);
    EXPECT_EQ(g.values[std::size_t(found->dst)].dtype, DType::i32);
    EXPECT_FALSE(g.values[std::size_t(found->dst)].needs_grad);
    return &std::get<MoveLabelsSpec>(found->spec);
  };
  spec.input.cutout = 3;
  spec.input.brightness = 0.1f;
  EXPECT_EQ(mover(Mode::train), nullptr);
  spec.input.crop_pad = 4;
  ASSERT_NE(mover(Mode::train), nullptr);
  EXPECT_EQ(mover(Mode::train)->input.crop_pad, 4);
  EXPECT_EQ(mover(Mode::infer), nullptr);
  spec.input.subvolume = {8, 6};
  ASSERT_NE(mover(Mode::infer), nullptr);
  EXPECT_EQ(mover(Mode::infer)->dst(), (Shape{2, 8, 6}));
}

// A checkpoint belongs to a function of samples, whatever augments the training.
TEST(UNet, TheFunctionDoesNotDependOnTheLabels) {
  ModelSpec spec = unet(4), augmented = unet(4);
  spec.blocks = augmented.blocks = 1;
  augmented.input.flip = true;
  const auto text = [&](const ModelSpec& s, Mode mode) { return describe_function(build(s, {4, 4, 1}, {4, 4}, mode)); };
  EXPECT_EQ(text(spec, Mode::infer), text(augmented, Mode::infer));
  EXPECT_EQ(text(augmented, Mode::train).size(), text(spec, Mode::train).size());
}

}  // namespace unet_test
}  // namespace millrace
