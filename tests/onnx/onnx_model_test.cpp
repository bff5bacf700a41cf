// Files in the format ONNX: what they hold, and what onnxruntime computed with them.
#include "millrace/onnx/onnx_model.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "millrace/model/program.hpp"
#include "onnx/networks.hpp"
#include "support/expect_error.hpp"
#include "support/forwarding_backend.hpp"
#include "support/recorded.hpp"
#include "support/temporary_folder.hpp"

#ifdef MILLRACE_WITH_ONNX
#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>
#endif

namespace millrace {
namespace onnx_model_test {

using namespace test;

// The logits of the network on the processor, with the channels last.
std::vector<float> millrace_logits(const OnnxCase& c) {
  CpuContext context;
  Graph graph = build_model(c.spec, c.batch, DType::f32, Mode::infer);
  const int logits = graph.nodes.back().src[0];
  graph = keep_outputs(std::move(graph), {logits});
  const ParameterLayout layout(graph);
  std::vector<float> master(std::size_t(layout.count)), running(std::size_t(layout.stats_count));
  for (std::size_t p = 0; p < layout.parameters.size(); ++p)
    fill_parameter(
        graph, int(p),
        std::span(master).subspan(std::size_t(layout.parameters[p].begin), std::size_t(layout.parameters[p].count)));
  for (std::size_t n = 0; n < layout.stats.size(); ++n)
    fill_statistics(graph, int(n),
                    std::span(running).subspan(std::size_t(layout.stats[n].begin), std::size_t(layout.stats[n].count)));
  CompiledGraph compiled = compile_graph(*context.compute.backend, std::move(graph), -1);
  Device& device = *context.compute.device;
  const Buffer arena(device, MemoryKind::device, compiled.plan.arena_bytes + 64);
  const Buffer packed(device, MemoryKind::device, compiled.plan.packed_weight_bytes + 64);
  StepState state;
  Program program(std::move(compiled), layout,
                  {.arena = arena.data(),
                   .packed_weights = packed.data(),
                   .master = master.data(),
                   .running = running.data(),
                   .state = &state});
  program.repack_weights();
  std::vector<std::uint8_t> x = onnx_samples(c);
  std::vector<std::int64_t> ids(std::size_t(c.batch.rows));
  const Shape& samples = program.graph().values[Graph::x].shape;
  program.forward({x.data(), DType::u8, samples}, {}, {ids.data(), DType::i64, {c.batch.rows}}, true);
  const Tensor& result = program.value(logits);
  return {result.as<float>(), result.as<float>() + result.count()};
}

// Nodes, inputs and outputs, and the names, shapes and checksums of constants. Tables of sines depend on the C library.
std::uint32_t fingerprint(const OnnxModel& model) {
  std::string text;
  for (const OnnxNode& n : model.nodes) {
    text += fmt::format("{} {} {} {}", n.type, n.name, fmt::join(n.inputs, ","), fmt::join(n.outputs, ","));
    for (const OnnxAttribute& a : n.attributes) {
      text += fmt::format(" {}=", a.name);
      std::visit(
          [&](const auto& value) {
            if constexpr (fmt::is_formattable<std::decay_t<decltype(value)>>::value)
              text += fmt::format("{}", value);
            else
              text += fmt::format("{}", fmt::join(value, ","));
          },
          a.value);
    }
    text += "\n";
  }
  for (const OnnxTensor& t : model.constants)
    text += fmt::format("{} {} {} {}\n", t.name, int(t.type), fmt::join(t.shape, ","),
                        t.name.starts_with("constant") ? 0 : crc32(t.values.data(), t.values.size()));
  for (const auto* values : {&model.inputs, &model.outputs})
    for (const OnnxValue& v : *values) text += fmt::format("{} {} {}\n", v.name, int(v.type), fmt::join(v.shape, ","));
  return crc32(text.data(), text.size());
}

// As tests/parity/networks.py has it: the norm, and the product with a vector of the formula.
std::pair<double, double> digest(const std::vector<float>& values) {
  const Sequence sequence("logits digest");
  double square = 0, product = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    square += double(values[i]) * double(values[i]);
    product += double(values[i]) * sequence.uniform(std::int64_t(i));
  }
  return {std::sqrt(square), product};
}

// onnxruntime computed the recorded logits with files that are still the same, and millrace computes them too. Rounding
// in float32 changes them by some 1e-7.
TEST(OnnxModel, OnnxruntimeComputedTheSameLogits) {
  const nlohmann::json recorded = test::recorded("onnx.json").at("cases");
  for (const OnnxCase& c : onnx_cases()) {
    SCOPED_TRACE(c.name);
    const nlohmann::json& expected = recorded.at(c.name);
    EXPECT_EQ(fingerprint(onnx_model_of(c)), expected["fingerprint"].get<std::uint32_t>())
        << "the file is another one now: run make parity, and copy its onnx.json to tests/parity/recorded";
    const auto [norm, product] = digest(millrace_logits(c));
    const double known = expected["logits"][0];
    EXPECT_NEAR(norm, known, 2e-6 * known);
    EXPECT_NEAR(product, expected["logits"][1].get<double>(), 2e-6 * known);
  }
}

TEST(OnnxModel, EveryOperationOfInferenceOccursInACase) {
  std::set<std::string> found;
  for (const OnnxCase& c : onnx_cases())
    for (const Node& node : build_model(c.spec, c.batch, DType::f32, Mode::infer).nodes)
      found.insert(name_of(node.spec));
  for (const Spec& spec :
       std::initializer_list<Spec>{ConvSpec{},          LinearSpec{},    BatchNormSpec{},      PoolSpec{},
                                   ActivationSpec{},    AddSpec{},       DropoutSpec{},        InputSpec{},
                                   EmbeddingSpec{},     LayerNormSpec{}, AttentionSpec{},      PositionEmbeddingSpec{},
                                   GatedSpec{},         ScaleSpec{},     RotarySpec{},         ConcatSpec{},
                                   SliceSpec{},         UpsampleSpec{},  TransposedConvSpec{}, GroupNormSpec{},
                                   ScaleBySpec{},       ReshapeSpec{},   DocumentsSpec{},      GatherSpec{},
                                   AffineSpec{},        PowerSpec{},     IndexedBiasSpec{},    SoftmaxSpec{},
                                   BatchedMatmulSpec{}, RecurrentSpec{}, PreluSpec{}})
    EXPECT_TRUE(found.contains(name_of(spec))) << name_of(spec);
  EXPECT_TRUE(found.contains("gru"));
}

// Convolutions read what is there: of an image network, only those layers transpose that want the channels last.
TEST(OnnxModel, ImagesAreNotTransposed) {
  for (const OnnxCase& c : onnx_cases()) {
    if (c.name != "resnet" && c.name != "unet") continue;
    const OnnxModel model = onnx_model_of(c);
    EXPECT_EQ(std::ranges::count(model.nodes, "Transpose", &OnnxNode::type), 0) << c.name;
  }
}

TEST(OnnxModel, ResultsOfARegressionHaveTheUnitOfTheTargets) {
  OnnxCase c = layers_case("targets", {"linear outputs"}, {4, 4, 1});
  const Graph graph = build_model(c.spec, c.batch, DType::f32, Mode::infer);
  const OnnxWeights weights{[&](int number, std::span<float> out) { fill_parameter(graph, number, out); }, {}};
  const OnnxOutput output{.value = graph.nodes.back().src[0],
                          .name = "prediction",
                          .factor = {2, 3, 4, 5, 6},
                          .shift = {1, 1, 1, 1, 1},
                          .expm1 = true,
                          .gain = 0.5f,
                          .lift = -1};
  const OnnxModel model = make_onnx_model({graph, {output}}, weights);
  std::vector<std::string> types;
  for (const OnnxNode& n : model.nodes) types.push_back(n.type);
  const std::vector<std::string> expected{"Mul",  "Flatten", "Gemm", "Mul", "Add", "Mul",
                                          "Sinh", "Exp",     "Mul",  "Mul", "Mul", "Add"};
  EXPECT_EQ(types, expected);
  EXPECT_EQ(model.nodes.back().outputs, std::vector<std::string>{"prediction"});
}

TEST(OnnxModel, LayersWithoutAFormAreNamedTogether) {
  const Graph whole = build_model(layers_case("pools", {"avgpool 2", "avgpool 2", "linear outputs"}, {8, 8, 1}).spec,
                                  {1, {8, 8, 1}, DType::u8, {}, true}, DType::f32, Mode::infer);
  Graph graph = whole;
  for (Node& node : graph.nodes)
    if (auto* pool = std::get_if<PoolSpec>(&node.spec)) pool->window.dilation = {2, 1, 1};
  const OnnxWeights weights{[](int, std::span<float>) {}, {}};
  const std::string message = test::message_of(
      [&] {
        make_onnx_model({graph, {{graph.nodes.back().src[0], "logits"}}}, weights);
      },
      Exit::config);
  EXPECT_NE(message.find("'avgpool1' (pool: average pooling with a dilation), 'avgpool2'"), message.npos) << message;
}

#ifdef MILLRACE_WITH_ONNX
::onnx::ModelProto read_model(const std::string& path) {
  ::onnx::ModelProto out;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(out.ParseFromIstream(&file)) << path;
  return out;
}

// The checker of libonnx knows all operations, with their attributes, types and shapes.
TEST(OnnxFile, TheCheckerOfTheFormatAcceptsAllNetworks) {
  const test::TemporaryFolder folder;
  for (const OnnxCase& c : onnx_cases()) {
    SCOPED_TRACE(c.name);
    const std::string path = folder / (c.name + ".onnx");
    OnnxModel model = onnx_model_of(c);
    const OnnxValue output = model.outputs.at(0);
    write_onnx(path, std::move(model));
    ::onnx::ModelProto file = read_model(path);
    ASSERT_NO_THROW(::onnx::checker::check_model(file));
    for (auto& value : *file.mutable_graph()->mutable_output())
      value.mutable_type()->mutable_tensor_type()->clear_shape();
    const ::onnx::ShapeInferenceOptions strict{true, 1, true};
    ASSERT_NO_THROW(::onnx::shape_inference::InferShapes(file, ::onnx::OpSchemaRegistry::Instance(), strict));
    const auto& inferred = file.graph().output(0).type().tensor_type().shape();
    ASSERT_EQ(inferred.dim_size(), int(output.shape.size()));
    for (int axis = 1; axis < inferred.dim_size(); ++axis)
      EXPECT_EQ(inferred.dim(axis).dim_value(), output.shape[std::size_t(axis)]) << axis;
  }
}

// The network sets one element of each row to -1.
TEST(OnnxFile, MasksAreWhere) {
  const OnnxCase c = archive_case("versions/v2.15_dyn", {8, 8, 1}, 10);
  OnnxModel model = onnx_model_of(c);
  const auto where = std::ranges::find(model.nodes, std::string("Where"), &OnnxNode::type);
  ASSERT_NE(where, model.nodes.end());
  const auto mask = std::ranges::find(model.constants, where->inputs[0], &OnnxTensor::name);
  ASSERT_NE(mask, model.constants.end());
  EXPECT_EQ(mask->values, std::string("\1\0\0\0\0\0\0\0\0\0", 10));
  const test::TemporaryFolder folder;
  write_onnx(folder / "masked.onnx", std::move(model));
  ::onnx::ModelProto file = read_model(folder / "masked.onnx");
  EXPECT_NO_THROW(::onnx::checker::check_model(file));
  const ::onnx::ShapeInferenceOptions strict{true, 1, true};
  EXPECT_NO_THROW(::onnx::shape_inference::InferShapes(file, ::onnx::OpSchemaRegistry::Instance(), strict));
}

TEST(OnnxFile, ReplacesOnlyFilesOfMillrace) {
  const test::TemporaryFolder folder;
  const OnnxModel model = onnx_model_of(onnx_cases()[0]);
  write_onnx(folder / "own.onnx", model);
  OnnxModel other = model;
  other.metadata["note"] = "second";
  write_onnx(folder / "own.onnx", other);
  EXPECT_EQ(read_model(folder / "own.onnx").metadata_props(0).value(), "second");
  ::onnx::ModelProto foreign = read_model(folder / "own.onnx");
  foreign.set_producer_name("pytorch");
  std::ofstream(folder / "foreign.onnx", std::ios::binary) << foreign.SerializeAsString();
  test::expect_error(Exit::data, "foreign.onnx exists and was not written by millrace",
                     [&] { write_onnx(folder / "foreign.onnx", model); });
  EXPECT_EQ(read_model(folder / "foreign.onnx").producer_name(), "pytorch");
  test::expect_error(Exit::data, "cannot create", [&] { write_onnx(folder / "gone/own.onnx", model); });
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 2);  // no temporary file
}

// For tests/parity/onnx_outputs.py, which records what onnxruntime computes: files into the folder that the environment
// variable names.
TEST(OnnxFile, Record) {
  const char* folder = std::getenv("MILLRACE_ONNX_FILES");
  ASSERT_NE(folder, nullptr);
  for (const OnnxCase& c : onnx_cases()) {
    OnnxModel model = onnx_model_of(c);
    model.metadata["fingerprint"] = std::to_string(fingerprint(model));
    write_onnx(std::filesystem::path(folder) / (c.name + ".onnx"), std::move(model));
  }
}
#else
TEST(OnnxFile, ABuildWithoutTheLibraryNamesThePackage) {
  test::expect_error(Exit::config, "install libonnx-dev", [] { require_onnx(); });
}
#endif

}  // namespace onnx_model_test
}  // namespace millrace
