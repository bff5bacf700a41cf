// Small networks for the tests of ONNX files, with weights and samples from a formula (support/recorded.hpp).
#pragma once
#include <string>
#include <vector>

#include "millrace/model/zoo.hpp"
#include "millrace/onnx/onnx_export.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "support/recorded.hpp"

namespace millrace::test {

struct OnnxCase {
  std::string name;
  ModelSpec spec;
  ModelBatch batch;
};

inline OnnxCase onnx_case(const std::string& name, const std::string& network, const Shape& sample) {
  OnnxCase out{name, {}, {3, sample, DType::u8, {}, true}};
  out.spec.name = network;
  out.spec.outputs = 5;
  out.spec.tokens = sample.rank == 1;
  out.spec.input.scale = 1.0f / 255;
  if (out.spec.tokens) out.batch.target = sample;
  return out;
}

inline OnnxCase layers_case(const std::string& name, const std::vector<std::string>& lines, const Shape& sample) {
  OnnxCase out = onnx_case(name, "layers", sample);
  out.spec.layers = lines;
  return out;
}

// A network that PyTorch has exported.
inline OnnxCase archive_case(const std::string& name, const Shape& sample, int outputs = 5) {
  OnnxCase out = onnx_case(name, "pt2", sample);
  out.spec.outputs = outputs;
  out.spec.exported = std::make_shared<const pt2::ExportedProgram>(
      pt2::read_exported_program(std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/" + name + ".pt2"));
  return out;
}

inline OnnxCase recurrent_case() {
  return layers_case("recurrent",
                     {"lstm 6 layers=2 bidirectional", "gru 5 bidirectional", "gru 4 bias=off", "linear outputs"},
                     {7, 3});
}

inline OnnxCase volume_case() {
  OnnxCase out = layers_case(
      "volume", {"conv 4 2 as=a", "upsample 2 mode=linear", "maxpool 2", "add a", "linear outputs"}, {4, 6, 5, 2});
  out.spec.input.channels = {1};
  out.spec.input.subvolume = {4, 4, 3};
  out.spec.input.transform = Transform::log1p;
  return out;
}

// All operations occur.
inline std::vector<OnnxCase> onnx_cases() {
  std::vector<OnnxCase> out;
  out.push_back(onnx_case("resnet", "resnet", {12, 10, 3}));
  out.back().spec.depth = 8;
  out.back().spec.input.mean = {0.4f, 0.5f, 0.6f};
  out.back().spec.input.std = {0.2f, 0.3f, 0.25f};
  out.push_back(onnx_case("vit", "vit", {8, 12, 3}));
  out.back().spec.blocks = 1;
  out.back().spec.patch = 4;
  out.push_back(onnx_case("gpt2", "gpt2", {7}));
  out.push_back(onnx_case("llama", "llama", {9}));
  out.back().spec.separator = 3;
  for (OnnxCase* language : {&out[2], &out[3]}) {
    language->spec.blocks = 1;
    language->spec.width = 32;
  }
  out.push_back(onnx_case("unet", "unet", {8, 12, 3}));
  out.back().spec.width = 4;
  out.back().spec.blocks = 2;
  out.back().batch.target = {8, 12};
  out.push_back(
      layers_case("signal",
                  {"conv 12 5 pad=2 bias=on", "groupnorm 3", "hardswish", "avgpool 2", "conv 12 3 pad=same groups=12",
                   "layernorm", "relu6", "se 4", "upsample 2", "slice 1 30 axis=0", "convt 6 4 stride=2 pad=1 bias=on",
                   "instancenorm", "leaky_relu", "maxpool 3 stride=2 pad=1", "linear outputs"},
                  {64, 3}));
  out.push_back(recurrent_case());
  out.push_back(layers_case("image",
                            {"conv 12 3x5 stride=2 pad=1 dilation=2 as=a",
                             "batchnorm",
                             "prelu",
                             "gelu",
                             "conv 12 3 pad=same",
                             "scale init=0.7",
                             "add a",
                             "hardsigmoid",
                             "concat a",
                             "reshape 18x8x12",
                             "prelu slopes=one",
                             "leaky_relu slope=0.2",
                             "silu",
                             "avgpool 3 stride=2 pad=1",
                             "gelu_tanh",
                             "conv 16 1",
                             "glu silu",
                             "globalpool",
                             "sigmoid",
                             "dropout 0.1",
                             "elu",
                             "tanh",
                             "linear outputs"},
                            {20, 21, 3}));
  out.push_back(volume_case());
  out.push_back(archive_case("shuffle", {12, 11, 3}));
  out.push_back(archive_case("swin", {12, 8, 3}));
  out.push_back(archive_case("response", {8, 12, 3}));
  out.push_back(archive_case("channels", {8, 6, 3}));
  out.push_back(archive_case("written", {10}, 30));
  return out;
}

// Factors of norms lie around 1, and variances above 0.
inline void fill_by_formula(const std::string& name, std::int64_t rows, std::span<float> out) {
  const Sequence sequence(name);
  const double scale = rows > 1 ? 1 / std::sqrt(double(out.size()) / double(rows)) : 0.1;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = float(scale * sequence.uniform(std::int64_t(i)) + (rows > 1 ? 0 : 1));
}

inline void fill_parameter(const Graph& graph, int number, std::span<float> out) {
  const Parameter& p = graph.parameters[std::size_t(number)];
  fill_by_formula(p.name, p.shape.rank > 1 ? p.shape[0] : 1, out);
}
inline void fill_statistics(const Graph& graph, int number, std::span<float> out) {
  fill_by_formula(graph.stats[std::size_t(number)].name, 1, out);
}

inline std::vector<std::uint8_t> onnx_samples(const OnnxCase& c) {
  const Sequence sequence(c.name + " x");
  std::vector<std::uint8_t> out(std::size_t(c.batch.rows * c.batch.sample.count()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::uint8_t(sequence.below(c.spec.tokens ? 5 : 256, std::int64_t(i)));
  return out;
}

inline OnnxModel onnx_model_of(const OnnxCase& c) {
  const Graph graph = build_model(c.spec, c.batch, DType::f32, Mode::infer);
  const OnnxWeights weights{[&](int number, std::span<float> out) { fill_parameter(graph, number, out); },
                            [&](int number, std::span<float> out) { fill_statistics(graph, number, out); }};
  return make_onnx_model({graph, {{.value = graph.nodes.back().src[0], .name = "logits"}}}, weights);
}

}  // namespace millrace::test
