// The lines that checkpoints hold of a network. If a test here fails although the network is the same, raise
// function_text_version.
#include <gtest/gtest.h>

#include "millrace/model/zoo.hpp"
#include "support/expect_error.hpp"

namespace millrace {
namespace describe_function_test {

ModelSpec example() {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = {"conv 8 3x5 stride=2 pad=1 groups=1 bias=on as=stem",
                 "batchnorm",
                 "gelu as=skip",
                 "dropout 0.2",
                 "conv 8 1",
                 "add skip",
                 "maxpool 2",
                 "globalpool",
                 "linear 7 bias=off",
                 "tanh",
                 "linear outputs"};
  spec.outputs = 3;
  spec.label_smoothing = 0.1f;
  spec.input.scale = 1 / 255.0f;
  spec.input.mean = {0.5f, 0.25f};
  spec.input.std = {1, 2};
  return spec;
}

std::vector<std::string> lines(const ModelSpec& spec, std::int64_t rows = 4, DType compute = DType::f32,
                               Mode mode = Mode::infer) {
  return describe_function(build_model(spec, {rows, {16, 16, 2}, DType::u8, {}, true}, compute, mode));
}

TEST(DescribeFunction, HasALineForEachOperation) {
  EXPECT_EQ(function_text_version, 1);
  EXPECT_EQ(lines(example()),
            (std::vector<std::string>{
                "input = input(x) scale=0.00392156886, offset=0, mean=0.5 0.25, std=1 2 -> 1x16x16x2",
                "stem = conv(input) 8 3x5 stride=2x2 pad=1x1 dilation=1x1 groups=1 bias=on -> 1x8x7x8",
                "batchnorm1 = batch_norm(stem) epsilon=1e-05 -> 1x8x7x8",
                "skip = activation(batchnorm1) gelu -> 1x8x7x8",
                "conv2 = conv(skip) 8 1x1 stride=1x1 pad=0x0 dilation=1x1 groups=1 bias=off -> 1x8x7x8",
                "add1 = add(conv2, skip) -> 1x8x7x8",
                "maxpool1 = pool(add1) max 2x2 stride=2x2 pad=0x0 dilation=1x1 -> 1x4x3x8",
                "globalpool1 = pool(maxpool1) global average -> 1x8",
                "linear1 = linear(globalpool1) 7 bias=off -> 1x7",
                "tanh1 = activation(linear1) tanh -> 1x7",
                "linear2 = linear(tanh1) 3 bias=on -> 1x3",
                "loss = cross_entropy(linear2, y) -> 1x3",
            }));
}

TEST(DescribeFunction, LeavesOutWhatOnlyTrainingUses) {
  const auto reference = lines(example());
  EXPECT_EQ(lines(example(), 9, DType::bf16, Mode::train), reference);
  ModelSpec other = example();
  other.layers[3] = "dropout 0.7";
  other.label_smoothing = 0;
  other.seed = 5;
  other.input.flip = true;
  EXPECT_EQ(lines(other), reference);
  other.mix = {0.2f, 1};
  EXPECT_EQ(lines(other, 9, DType::f32, Mode::train), reference);
  other.layers.erase(other.layers.begin() + 3);
  EXPECT_EQ(lines(other), reference);
}

TEST(DescribeFunction, ShowsEveryOtherChange) {
  const auto reference = lines(example());
  const auto changed = [&](auto change) {
    ModelSpec other = example();
    change(other);
    return lines(other) != reference;
  };
  EXPECT_TRUE(changed([](ModelSpec& s) { s.layers[0] = "conv 8 3x5 stride=2 pad=1 bias=off as=stem"; }));
  EXPECT_TRUE(changed([](ModelSpec& s) { s.layers[2] = "gelu_tanh as=skip"; }));
  EXPECT_TRUE(changed([](ModelSpec& s) { s.layers[6] = "avgpool 2"; }));
  EXPECT_TRUE(changed([](ModelSpec& s) { s.layers[5] = "add stem"; }));
  EXPECT_TRUE(changed([](ModelSpec& s) { s.input.mean = {0.5f, 0.26f}; }));
  EXPECT_TRUE(changed([](ModelSpec& s) { s.input.transform = Transform::log1p; }));
  EXPECT_TRUE(changed([](ModelSpec& s) { s.outputs = 4; }));
}

TEST(LayerNames, AreThoseOfAsOrTheKindAndItsNumber) {
  const Graph graph = build_model(example(), {4, {16, 16, 2}, DType::u8, {}, true}, DType::f32, Mode::train);
  std::vector<std::string> names, older;
  for (const Parameter& p : graph.parameters) {
    names.push_back(p.name);
    older.push_back(p.older_name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"stem.weight", "stem.bias", "batchnorm1.weight", "batchnorm1.bias",
                                             "conv2.weight", "linear1.weight", "linear2.weight", "linear2.bias"}));
  EXPECT_EQ(older,
            (std::vector<std::string>{"1.conv.weight", "1.conv.bias", "2.batchnorm.weight", "2.batchnorm.bias",
                                      "5.conv.weight", "9.linear.weight", "11.linear.weight", "11.linear.bias"}));
  EXPECT_EQ(graph.stats.at(0).older_name, "2.batchnorm");
}

TEST(LayerNames, ThatAreTakenOrUnusableAreRefused) {
  ModelSpec spec = example();
  spec.layers[4] = "conv 8 1 as=batchnorm1";
  test::expect_error(Exit::config, "the name 'batchnorm1' is already used", [&] { lines(spec); });
  spec = example();
  spec.layers[0] = "conv 8 3 pad=1 as=linear1";
  test::expect_error(Exit::config, "`linear 7 bias=off`: the name 'linear1' is already used", [&] { lines(spec); });
  for (const char* name : {"as=", "as=a/b", "as=.x", "as=ä"}) {
    spec = example();
    spec.layers[0] = std::string("conv 8 3 pad=1 ") + name;
    spec.layers[5] = "relu";
    test::expect_error(Exit::config, "is not a name", [&] { lines(spec); });
  }
}

}  // namespace describe_function_test
}  // namespace millrace
