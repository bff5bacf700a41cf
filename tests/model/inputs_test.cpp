// Networks with lines `input`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "support/expect_error.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace inputs_test {

using namespace test;

constexpr std::int64_t rows = 5;

struct Bench : CpuContext, ProgramFixture {
  Bench(const ModelSpec& spec, const Shape& sample, DType type, DType dtype = DType::f32)
      : ProgramFixture(*compute.device, *compute.backend, spec, {rows, sample, type, {}, true}, 1, dtype) {}
  void set_weights_and_labels_of(const Bench& other) {
    master = other.master;
    y = other.y;
  }
};

float value(std::int64_t row, std::int64_t i) { return float((row * 37 + i * 11) % 19) / 7 - 1; }

// Nine features as one input, and as inputs of six and of three, which lie 32 and 16 bytes apart.
TEST(NamedInputs, PartsOfASampleEqualTheWholeSample) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    ModelSpec whole = written_network({"linear 12 as=a", "relu", "linear outputs as=b"});
    whole.input.mean = {.1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f, .9f};
    whole.input.std = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    ModelSpec parts = written_network({"input six", "input three as=others", "concat others from=six", "linear 12 as=a",
                                       "relu", "linear outputs as=b"});
    NamedInput six{"six", 0, {6}, DType::f32, {}}, three{"three", 32, {3}, DType::f32, {}};
    six.spec.mean.assign(whole.input.mean.begin(), whole.input.mean.begin() + 6);
    six.spec.std.assign(whole.input.std.begin(), whole.input.std.begin() + 6);
    three.spec.mean.assign(whole.input.mean.begin() + 6, whole.input.mean.end());
    three.spec.std.assign(whole.input.std.begin() + 6, whole.input.std.end());
    parts.inputs = {six, three};
    Bench one(whole, {9}, DType::f32, dtype), two(parts, {48}, DType::u8, dtype);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < 9; ++i) {
        const float v = value(r, i);
        std::memcpy(one.x.data() + (r * 9 + i) * 4, &v, 4);
        std::memcpy(two.x.data() + r * 48 + (i < 6 ? i * 4 : 32 + (i - 6) * 4), &v, 4);
      }
    two.set_weights_and_labels_of(one);
    EXPECT_EQ(one.run(), two.run());
    EXPECT_EQ(one.gradient_by_parameter(), two.gradient_by_parameter());
  }
}

// Odd numbers of bytes, and channels of an image first.
TEST(NamedInputs, ImagesOfBytesKeepTheirLayout) {
  ModelSpec whole = written_network({"conv 4 3", "globalpool", "linear outputs"});
  whole.input.scale = 1 / 255.0f;
  whole.input.channels_first = true;
  ModelSpec parts = whole;
  parts.layers.insert(parts.layers.begin(), "input image");
  parts.inputs = {{"image", 16, {7, 5, 3}, DType::u8, whole.input}};
  Bench one(whole, {7, 5, 3}, DType::u8), two(parts, {128}, DType::u8);
  two.set_weights_and_labels_of(one);
  for (std::int64_t r = 0; r < rows; ++r) std::memcpy(two.x.data() + r * 128 + 16, one.x.data() + r * 105, 105);
  EXPECT_EQ(one.run(), two.run());
  EXPECT_EQ(one.gradient_by_parameter(), two.gradient_by_parameter());
}

// The two halves of the weights have the same gradient if crops and flips of the two images are the same.
TEST(NamedInputs, ImagesOfTheSameShapeAreMovedAlike) {
  ModelSpec spec = written_network(
      {"input left", "conv 4 3 as=a", "input right", "conv 4 3 as=b", "concat a", "globalpool", "linear outputs"});
  InputSpec moved;
  moved.scale = 1 / 255.0f;
  moved.crop_pad = 3;
  moved.flip = true;
  moved.seed = 5;
  spec.inputs = {{"left", 0, {8, 8, 1}, DType::u8, moved}, {"right", 64, {8, 8, 1}, DType::u8, moved}};
  Bench bench(spec, {128}, DType::u8);
  const Graph& graph = bench.program->graph();
  const auto weights = [&](std::vector<float>& of, const char* name) {
    const auto number = std::ranges::find(graph.parameters, name, &Parameter::name) - graph.parameters.begin();
    const auto& slot = bench.layout->parameters[std::size_t(number)];
    return std::span(of).subspan(std::size_t(slot.begin), std::size_t(slot.count));
  };
  for (std::int64_t r = 0; r < rows; ++r) std::memcpy(bench.x.data() + r * 128 + 64, bench.x.data() + r * 128, 64);
  std::ranges::copy(weights(bench.master, "a.weight"), weights(bench.master, "b.weight").begin());
  const auto last = weights(bench.master, "linear1.weight");  // (10, 8)
  for (std::size_t o = 0; o < 10; ++o) std::copy_n(last.data() + o * 8, 4, last.data() + o * 8 + 4);
  bench.run();
  const auto left = weights(bench.gradient, "a.weight"), right = weights(bench.gradient, "b.weight");
  EXPECT_TRUE(std::ranges::equal(left, right));
  EXPECT_TRUE(std::ranges::any_of(left, [](float g) { return g != 0; }));
}

TEST(NamedInputs, WhatCannotBeIsRefused) {
  const auto refuse = [](std::vector<std::string> layers, const char* words) {
    ModelSpec spec = written_network(std::move(layers));
    spec.inputs = {{"six", 0, {6}, DType::f32, {}}, {"three", 32, {3}, DType::f32, {}}};
    expect_error(Exit::config, words, [&] { Bench bench(spec, {48}, DType::u8); });
  };
  refuse({"linear 3"}, "reads no input. begin with a line `input NAME`");
  refuse({"input seven"}, "data.x has no data set 'seven'. it has six, three");
  refuse({"input six", "linear 3 from=input"}, "no earlier line has as=input");
  refuse({"input six", "input three", "linear outputs"}, "no layer reads the result of 'six'");
  refuse({"input six", "input six"}, "the name 'six' is already used");
  ModelSpec spec = written_network({});
  spec.name = "mlp";
  spec.inputs = {{"six", 0, {6}, DType::f32, {}}};
  expect_error(Exit::config, "mlp has one input. name one data set in data.x",
               [&] { Bench bench(spec, {32}, DType::u8); });
}

}  // namespace inputs_test
}  // namespace millrace
