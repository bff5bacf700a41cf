// The names, shapes and orders of parameters in PyTorch.
#include "millrace/weights/pytorch_tensors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "millrace/model/pt2/import.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/weights/hugging_face.hpp"
#include "support/expect_error.hpp"
#include "support/recorded.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace pytorch_tensors_test {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

ModelSpec zoo(const std::string& name, std::int64_t outputs) {
  ModelSpec spec;
  spec.name = name;
  spec.outputs = outputs;
  spec.tokens = name == "gpt2" || name == "llama";
  return spec;
}

Graph graph_of(const ModelSpec& spec, const Shape& sample) {
  const ModelBatch batch =
      spec.tokens ? ModelBatch{1, sample, DType::u16, sample, true} : ModelBatch{1, sample, DType::u8, {}, true};
  return build_model(spec, batch, DType::f32, Mode::infer);
}

Graph layers(const std::vector<std::string>& lines, const Shape& sample) {
  ModelSpec spec = zoo("layers", 4);
  spec.layers = lines;
  return graph_of(spec, sample);
}

// tests/parity/state_dicts.py recorded what torchvision, timm and transformers have.
TEST(PyTorchTensors, NetworksOfTheZooHaveTheNamesOfTheirLibraries) {
  const auto recorded = test::recorded("state_dicts.json").at("networks").get<std::map<std::string, Shapes>>();
  ASSERT_EQ(recorded.size(), 6u);
  for (const auto& [name, shapes] : recorded) {
    SCOPED_TRACE(name);
    const bool language = name == "gpt2" || name == "llama", resnet = name.starts_with("resnet");
    ModelSpec spec = zoo(resnet ? "resnet" : name, language ? 65 : 10);
    if (resnet) spec.depth = std::stol(name.substr(6));
    Shapes found;
    for (const PyTorchTensor& t :
         pytorch_tensors(graph_of(spec, language ? Shape{32} : Shape{224, 224, 3}), spec.name)) {
      found[t.name] = t.shape;
      EXPECT_EQ(t.count(), std::accumulate(t.shape.begin(), t.shape.end(), std::int64_t(1), std::multiplies<>()))
          << t.name;
    }
    EXPECT_EQ(found, shapes);
  }
}

// The parameter with values 0, 1, 2, ... in PyTorch's order; scattering it back must give the same.
std::vector<float> ordered(const Graph& graph, const std::string& name) {
  for (const PyTorchTensor& t : pytorch_tensors(graph, "layers")) {
    if (t.name != name) continue;
    std::vector<float> parameter(std::size_t(graph.parameters[std::size_t(t.index)].shape.count()));
    std::iota(parameter.begin(), parameter.end(), 0.0f);
    std::vector<float> tensor(std::size_t(t.count())), back(parameter.size(), -1);
    gather(t, parameter, tensor);
    scatter(t, tensor, back);
    EXPECT_EQ(back, parameter);
    return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(PyTorchTensors, ChannelsOfConvolutionsComeFirst) {
  const auto w = ordered(layers({"conv 2 1x3 as=c", "linear outputs"}, {4, 5, 2}), "c.weight");
  EXPECT_EQ(w, (std::vector<float>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));  // (2, 2, 1, 3) of (2, 1, 3, 2)
}

TEST(PyTorchTensors, FlattenedImagesHaveTheirChannelsFirst) {
  const auto w = ordered(layers({"conv 3 1 as=c", "linear 4 as=fc", "linear outputs as=last"}, {1, 2, 1}), "fc.weight");
  EXPECT_EQ(std::vector<float>(w.begin(), w.begin() + 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  const auto direct = ordered(layers({"linear outputs as=fc"}, {2, 1, 3}), "fc.weight");
  EXPECT_EQ(std::vector<float>(direct.begin(), direct.begin() + 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(PyTorchTensors, SignalsAreFlattenedLikeImagesAfterConvolutionsOnly) {
  const auto after = ordered(layers({"conv 2 1 as=c", "relu", "linear outputs as=fc"}, {3, 2}), "fc.weight");
  EXPECT_EQ(std::vector<float>(after.begin(), after.begin() + 6), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  const auto plain = ordered(layers({"linear outputs as=fc"}, {3, 2}), "fc.weight");
  EXPECT_EQ(std::vector<float>(plain.begin(), plain.begin() + 6), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  const auto recurrent = ordered(layers({"conv 2 1 as=c", "gru 2", "linear outputs as=fc"}, {3, 2}), "fc.weight");
  EXPECT_EQ(std::vector<float>(recurrent.begin(), recurrent.begin() + 6), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(PyTorchTensors, PartsOfAMatrixKeepTheirRows) {
  const Graph graph = graph_of(zoo("llama", 65), {8});
  std::map<std::string, PyTorchTensor> of;
  for (const PyTorchTensor& t : pytorch_tensors(graph, "llama")) of[t.name] = t;
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(of.at(layer + "self_attn.k_proj.weight").begin, 128 * 128);  // behind four heads of 32 rows
  EXPECT_EQ(of.at(layer + "self_attn.v_proj.weight").begin, (128 + 64) * 128);
  EXPECT_EQ(of.at(layer + "mlp.up_proj.weight").begin, 352 * 128);
  const Graph gpt = graph_of(zoo("gpt2", 65), {8});
  for (const PyTorchTensor& t : pytorch_tensors(gpt, "gpt2")) {
    if (t.name == "transformer.h.0.mlp.c_fc.weight") {
      EXPECT_EQ(t.strides[0], 1);
      EXPECT_EQ(t.strides[1], 128);
    }
    EXPECT_EQ(t.alias, t.name == "lm_head.weight");
  }
}

TEST(PyTorchTensors, PrefixesOfWrappersAreNoPartOfAName) {
  EXPECT_EQ(plain_name("module._orig_mod.fc.weight", "resnet"), "fc.weight");
  EXPECT_EQ(plain_name("transformer.wte.weight", "gpt2"), "wte.weight");
  EXPECT_EQ(plain_name("model.norm.weight", "llama"), "norm.weight");
  EXPECT_EQ(plain_name("model.norm.weight", "layers"), "model.norm.weight");
  EXPECT_TRUE(is_no_weight("h.0.attn.bias"));
  EXPECT_FALSE(is_no_weight("h.0.attn.c_attn.bias"));
}

TEST(HuggingFace, AConfigOfAnotherNetworkIsRefusedWithItsKeys) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "config.json";
  const Graph graph = graph_of(zoo("llama", 65), {8});
  nlohmann::json config = {{"model_type", "llama"},    {"num_hidden_layers", 4},   {"hidden_size", 128},
                           {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"intermediate_size", 352},
                           {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},    {"hidden_act", "silu"}};
  const auto compare = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = config;
    if (*key) changed[key] = value;
    std::ofstream(path) << changed;
    require_same_network(path, graph, "llama");
  };
  compare("", {});
  test::expect_error(Exit::config, "model.heads = 8", [&] { compare("num_attention_heads", 8); });
  test::expect_error(Exit::config, "model.rotary_base = 500000", [&] { compare("rope_theta", 500000.0); });
  test::expect_error(Exit::config, "the epsilon 1e-06", [&] { compare("rms_norm_eps", 1e-6); });
  test::expect_error(Exit::config, "the type 'gpt2'", [&] { compare("model_type", "gpt2"); });
  test::expect_error(Exit::config, "its activation is gelu", [&] { compare("hidden_act", "gelu"); });
  test::expect_error(Exit::config, "rotary positions are scaled", [&] {
    compare("rope_scaling", {{"rope_type", "llama3"}});
  });
  test::expect_error(Exit::data, "not a config.json", [&] { compare("hidden_size", "wide"); });
}

// A network that PyTorch has exported goes back with the shapes and the order that it came with.
TEST(PyTorchTensors, ExportedNetworksKeepTheirShapesAndOrder) {
  const std::map<std::string, Shape> samples{
      {"cnn", {12, 14, 3}}, {"vit", {12, 16, 3}}, {"convnext", {12, 8, 3}}, {"volume", {8, 6, 4, 2}}};
  for (const auto& [name, sample] : samples) {
    SCOPED_TRACE(name);
    ModelSpec spec = zoo("pt2", 5);
    const std::string path = std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/" + name + ".pt2";
    const auto program = std::make_shared<const pt2::ExportedProgram>(pt2::read_exported_program(path));
    spec.exported = program;
    const Graph graph = graph_of(spec, sample);
    pt2::ArchiveValues archive(*program, graph);
    pt2::TensorReader reader(*program);
    for (const PyTorchTensor& t : pytorch_tensors(graph, "pt2")) {
      if (t.kind != PyTorchTensor::Kind::parameter) continue;
      const auto stored = std::ranges::find(program->tensors, t.name, &pt2::StoredTensor::name);
      ASSERT_NE(stored, program->tensors.end()) << t.name;
      EXPECT_EQ(t.shape, stored->sizes) << t.name;
      std::vector<float> parameter(std::size_t(t.count())), back(parameter.size()), file(parameter.size());
      archive.read_parameter(t.index, parameter);
      gather(t, parameter, back);
      reader.read(*stored, file);
      EXPECT_EQ(back, file) << t.name;
    }
  }
}

}  // namespace pytorch_tensors_test
}  // namespace millrace
