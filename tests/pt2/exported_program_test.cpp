// Archives that PyTorch has written: what is read of them. The network of tests/fixtures/pt2/v*.pt2 has a convolution,
// a batch norm, a dropout, linear layers of which two share their weight, and constants.
#include "millrace/pt2/exported_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/expect_error.hpp"

namespace millrace::pt2 {
namespace exported_program_test {

ExportedProgram fixture(const std::string& name) {
  return read_exported_program(std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/" + name);
}

const StoredTensor& tensor(const ExportedProgram& program, const std::string& name) {
  return *std::ranges::find(program.tensors, name, &StoredTensor::name);
}

const ExportedNode& node(const ExportedProgram& program, const std::string& name) {
  return *std::ranges::find(program.nodes, name, &ExportedNode::name);
}

TEST(ExportedProgram, EveryVersionGivesTheSameNetwork) {
  for (const auto& [file, version, minor] :
       {std::tuple{"versions/v2.9.1_dyn.pt2", "2.9.1", 14}, std::tuple{"versions/v2.10.0_dyn.pt2", "2.10.0", 15},
        std::tuple{"versions/v2.15_dyn.pt2", "2.15.0", 20}}) {
    SCOPED_TRACE(file);
    const ExportedProgram program = fixture(file);
    EXPECT_TRUE(program.torch_version.starts_with(version)) << program.torch_version;
    EXPECT_EQ(program.schema_major, 8);
    EXPECT_EQ(program.schema_minor, minor);
    ASSERT_EQ(program.user_inputs.size(), 1u);
    EXPECT_EQ(program.user_inputs[0].name, "x");
    EXPECT_EQ(program.user_inputs[0].sizes, (std::vector<std::int64_t>{4, 1, 8, 8}));
    EXPECT_EQ(program.user_inputs[0].dynamic, (std::vector<bool>{true, false, false, false}));
    EXPECT_EQ(program.inputs.size(), 15u);
    EXPECT_EQ(program.tensors.size(), 14u);
    EXPECT_EQ(program.outputs, std::vector<std::string>{program.nodes.back().results[0]});
    EXPECT_EQ(program.nodes[0].target, "aten.conv2d.default");
    EXPECT_EQ(program.nodes[0].module, "conv");
    EXPECT_TRUE(program.nodes[0].source.ends_with("export_small.py:13")) << program.nodes[0].source;
  }
  EXPECT_EQ(fixture("versions/v2.15_static.pt2").user_inputs[0].dynamic, std::vector<bool>(4, false));
}

TEST(ExportedProgram, ArgumentsHaveTheirTypes) {
  const ExportedProgram program = fixture("versions/v2.15_dyn.pt2");
  const ExportedNode& conv = node(program, "conv2d");
  EXPECT_EQ(std::get<TensorName>(*conv.find("weight")).name, "p_conv_weight");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*conv.find("bias")));
  const auto& padding = std::get<std::vector<Integer>>(*conv.find("padding"));
  ASSERT_EQ(padding.size(), 2u);
  EXPECT_EQ(std::get<std::int64_t>(padding[1]), 1);
  EXPECT_EQ(conv.find("groups"), nullptr);  // the default
  const ExportedNode& norm = node(program, "batch_norm");
  EXPECT_TRUE(std::get<bool>(*norm.find("training")));
  EXPECT_DOUBLE_EQ(std::get<double>(*norm.find("eps")), 1e-5);
  EXPECT_EQ(std::get<std::int64_t>(*node(program, "flatten").find("start_dim")), 1);
  EXPECT_EQ(std::get<ScalarType>(*node(program, "to").find("dtype")), ScalarType::f32);
}

TEST(ExportedProgram, ValuesAreReadThroughStrides) {
  const ExportedProgram program = fixture("versions/v2.15_dyn.pt2");
  TensorReader reader(program);
  const StoredTensor& conv = tensor(program, "conv.weight");
  EXPECT_TRUE(conv.parameter && conv.requires_grad);
  EXPECT_EQ(conv.sizes, (std::vector<std::int64_t>{8, 1, 3, 3}));
  std::vector<float> weight(72), scale(1);
  reader.read(conv, weight);
  for (const float w : weight) EXPECT_LE(std::abs(w), 1.0f / 3);  // PyTorch's initial values: 1 / sqrt(9)
  EXPECT_GT(*std::ranges::max_element(weight), 0.3f);
  reader.read(tensor(program, "scale"), scale);  // float64
  EXPECT_EQ(scale[0], 2.0f);
  std::vector<std::int64_t> integers(10), mask(100);
  reader.read(tensor(program, "c"), integers);
  EXPECT_EQ(integers[9], 9);
  reader.read(tensor(program, "mask"), mask);  // lower triangle
  EXPECT_EQ(std::ranges::count(mask, 1), 55);
  EXPECT_EQ(mask[1], 0);
  EXPECT_EQ(mask[10], 1);
  StoredTensor transposed = tensor(program, "mask");
  std::swap(transposed.strides[0], transposed.strides[1]);
  reader.read(transposed, mask);
  EXPECT_EQ(mask[1], 1);
  EXPECT_EQ(mask[10], 0);
  test::expect_error(Exit::data, "not integers", [&] { reader.read(conv, std::span(mask).first(72)); });
}

TEST(ExportedProgram, TiedWeightsShareTheirElements) {
  const ExportedProgram program = fixture("versions/v2.9.1_dyn.pt2");
  EXPECT_TRUE(tensor(program, "tied.weight").same_storage(tensor(program, "tied2.weight")));
  EXPECT_FALSE(tensor(program, "tied.weight").same_storage(tensor(program, "fc.weight")));
}

TEST(ExportedProgram, OlderArchivesAreRefusedWithAHint) {
  test::expect_error(Exit::data, "export the network again with PyTorch 2.9 or newer",
                     [] { fixture("versions/v2.8.0_static.pt2"); });
  test::expect_error(Exit::data, "no-such.pt2", [] { fixture("no-such.pt2"); });
}

TEST(ExportedProgram, DescriptionNamesInputsParametersAndOperations) {
  const ExportedProgram program = fixture("versions/v2.15_dyn.pt2");
  const std::string text = describe(program, [](const std::string& target) { return target != "aten.select.int"; });
  for (const char* words :
       {"PyTorch 2.15.0", "input x: float32 (any, 1, 8, 8)", "parameters: 6 with 1478 elements, 1 more names of tied",
        "operations: 20", "    3 aten.linear.default\n", "    1 aten.select.int  (not supported yet)\n"})
    EXPECT_NE(text.find(words), text.npos) << words << " in\n" << text;
}

// As in a checkpoint, which has the weights.
TEST(ExportedProgram, TextHasTheNetworkAndTheValuesThatWereNotLeftOut) {
  const ExportedProgram program = fixture("versions/v2.15_dyn.pt2");
  const auto in_checkpoint = [](const StoredTensor& t) { return t.parameter; };
  const ExportedProgram copy = read_program_text("net.pt2", program_text(program, in_checkpoint));
  EXPECT_EQ(copy.path, "net.pt2");
  EXPECT_EQ(copy.nodes.size(), program.nodes.size());
  EXPECT_EQ(copy.user_inputs[0].sizes, program.user_inputs[0].sizes);
  EXPECT_EQ(describe(copy).substr(describe(copy).find('\n')), describe(program).substr(describe(program).find('\n')));
  ASSERT_EQ(copy.tensors.size(), program.tensors.size());
  TensorReader before(program), after(copy);
  for (std::size_t i = 0; i < copy.tensors.size(); ++i) {
    const StoredTensor& t = copy.tensors[i];
    std::vector<float> expected(std::size_t(t.count())), values(expected.size());
    if (t.parameter) {
      test::expect_error(Exit::data, "in the file alone", [&] { after.read(t, values); });
      continue;
    }
    before.read(program.tensors[i], expected);
    after.read(t, values);
    EXPECT_EQ(values, expected) << t.name;
  }
  EXPECT_EQ(program_text(copy, in_checkpoint), program_text(program, in_checkpoint));
  test::expect_error(Exit::data, "in the checkpoint cannot be read", [] { read_program_text("net.pt2", "{"); });
  test::expect_error(Exit::data, "holds no exported network", [] { read_program_text("net.pt2", "{}"); });
}

}  // namespace exported_program_test
}  // namespace millrace::pt2
