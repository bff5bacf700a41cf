// Networks for text from PyTorch: what becomes one operation, and what is refused.
#include "pt2_programs.hpp"

namespace millrace::pt2 {
namespace pt2_text_test {

using namespace test_programs;

Graph text_graph(ExportedProgram program, std::int64_t positions = 10) {
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = 30;
  spec.tokens = true;
  spec.exported = std::make_shared<const ExportedProgram>(std::move(program));
  return build_model(spec, {4, {positions}, DType::u16, {positions}, true}, DType::f32, Mode::train);
}

std::int64_t count_of(const Graph& graph, const std::string& name) {
  const Names names = operations_of(graph);
  return std::ranges::count(names, name);
}

void expect_text_refused(ExportedProgram program, const std::string& words) {
  const std::string message = test::message_of([&] { text_graph(std::move(program)); }, Exit::config);
  EXPECT_NE(message.find(words), message.npos) << message;
}

Argument& argument_of(ExportedNode& node, const std::string& name) {
  return std::ranges::find(node.arguments, name, [](const auto& one) { return one.first; })->second;
}

TEST(Pt2Text, NodesThatComputeAKnownFunctionBecomeOneOperation) {
  const Graph graph = text_graph(fixture("decoder.pt2"));
  EXPECT_EQ(count_of(graph, "rotary"), 2);  // the other frequencies have no base
  EXPECT_EQ(count_of(graph, "attention"), 2);
  EXPECT_EQ(count_of(graph, "softmax"), 0);
  EXPECT_EQ(count_of(graph, "rms_norm"), 2);  // the third has 1 + weight
  EXPECT_EQ(count_of(graph, "power"), 1);
  for (const Node& node : graph.nodes)
    if (const auto* attention = std::get_if<AttentionSpec>(&node.spec)) {
      EXPECT_TRUE(attention->causal);
      EXPECT_EQ(attention->heads, 4);
      EXPECT_EQ(attention->key_heads, 2);
    } else if (const auto* rotary = std::get_if<RotarySpec>(&node.spec)) {
      EXPECT_EQ(rotary->theta, 100);
      EXPECT_EQ(rotary->key_heads, 0);
    }
  const Graph encoder = text_graph(fixture("encoder.pt2"));
  EXPECT_EQ(count_of(encoder, "attention"), 1);
  EXPECT_EQ(count_of(encoder, "gather"), 1);  // the first token for all positions
  for (const Node& node : encoder.nodes)
    if (const auto* embedding = std::get_if<EmbeddingSpec>(&node.spec)) {
      EXPECT_EQ(embedding->padding, 0);
    }
  const Graph relative = text_graph(fixture("relative.pt2"));
  EXPECT_EQ(count_of(relative, "activation"), 1);
  EXPECT_EQ(count_of(relative, "attention"), 1);  // the others have a learned bias
  EXPECT_EQ(count_of(relative, "indexed_bias"), 2);
}

TEST(Pt2Text, DifferencesAreNoRotation) {
  ExportedProgram program = fixture("decoder.pt2");
  const auto sum = std::ranges::find(program.nodes, "add_1", &ExportedNode::name);
  ASSERT_NE(sum, program.nodes.end());
  sum->arguments.emplace_back("alpha", -1.0);
  EXPECT_EQ(count_of(text_graph(program), "rotary"), 1);
}

// A tensor that is overwritten between the nodes of a pattern has two meanings.
TEST(Pt2Text, OverwrittenTensorsAreNoPattern) {
  ExportedProgram program = fixture("decoder.pt2");
  const auto square = std::ranges::find(program.nodes, "aten.pow.Tensor_Scalar", &ExportedNode::target);
  ASSERT_NE(square, program.nodes.end());
  const std::string x = std::get<TensorName>(argument_of(*square, "self")).name;
  program.nodes.insert(square + 1, node("mul_.Tensor", "doubled", {{"self", tensor(x)}, {"other", 2.0}}));
  const Graph graph = text_graph(program);
  EXPECT_EQ(count_of(graph, "rms_norm"), 1);
  EXPECT_EQ(count_of(graph, "power"), 2);
}

TEST(Pt2Text, WhatNothingReadsIsLeftOut) {
  ExportedProgram program = fixture("encoder.pt2");
  const std::string x = program.outputs[0];
  program.nodes.push_back(node("tanh.default", "unread", {{"self", tensor(x)}}));
  program.nodes.push_back(node("sigmoid.default", "unread_too", {{"self", tensor("unread")}}));
  program.nodes.push_back(node("erf.default", "unread_and_unknown", {{"self", tensor(x)}}));
  EXPECT_EQ(operations_of(text_graph(program)), operations_of(text_graph(fixture("encoder.pt2"))));
  EXPECT_EQ(unused_parameters(program), Names());
  program.outputs[0] = node_of(program, "aten.layer_norm.default").results[0];  // what follows is not read any more
  const Names unused = unused_parameters(program);
  EXPECT_EQ(std::ranges::count(unused, "pool.weight"), 1);
  EXPECT_EQ(std::ranges::count(unused, "words.weight"), 0);
}

TEST(Pt2Text, RowsAreNumberedForIndicesOnly) {
  ExportedProgram program = fixture("encoder.pt2");
  const auto rows = std::ranges::find_if(program.nodes, [](const ExportedNode& n) {
    const Argument* end = n.find("end");
    return n.target == "aten.arange.default" && end && std::holds_alternative<SymbolName>(*end);
  });
  ASSERT_NE(rows, program.nodes.end());
  const std::string name = rows->results[0], out = program.outputs[0];
  program.nodes.push_back(node("sin.default", "sine", {{"self", tensor(name)}}));
  program.nodes.push_back(node("mul.Tensor", "product", {{"self", tensor(out)}, {"other", tensor("sine")}}));
  program.outputs[0] = "product";
  expect_text_refused(program, "is supported for values that do not depend on the samples only");
  node_of(program, "aten.sin.default").target = "aten.neg.default";
  expect_text_refused(program, "computes with the numbers of the rows");
  program.nodes.back() = node("select.int", "product", {{"self", tensor(name)}, {"dim", std::int64_t(0)}});
  expect_text_refused(program, "takes some of the rows");
}

TEST(Pt2Text, IndicesBeyondATableAreRefused) {
  ExportedProgram program = fixture("encoder.pt2");
  ExportedNode& words = node_of(program, "aten.embedding.default");
  argument_of(words, "padding_idx") = std::int64_t(30);
  expect_text_refused(program, "padding_idx beyond its rows");
  program = fixture("counted.pt2");
  for (ExportedNode& one : program.nodes)
    if (one.target == "aten.add.Tensor" && one.find("other") && std::get_if<std::int64_t>(one.find("other")) &&
        std::get<std::int64_t>(*one.find("other")) == 3)
      argument_of(one, "other") = std::int64_t(6);
  expect_text_refused(program, "looks up row 16 of 16");
  program = fixture("encoder.pt2");
  argument_of(node_of(program, "aten.gather.default"), "dim") = std::int64_t(0);
  expect_text_refused(program, "has the index 1 of 1");
  node_of(program, "aten.gather.default").arguments[1].second = std::int64_t(7);
  expect_text_refused(program, "has no axis 7 of 2");
}

TEST(Pt2Text, IntegersOfTokensAreNoValues) {
  ExportedProgram program = fixture("counted.pt2");
  const std::string counts = node_of(program, "aten.cumsum.default").results[0], out = program.outputs[0];
  program.nodes.push_back(node("neg.default", "negative", {{"self", tensor(counts)}}));
  program.outputs[0] = "negative";
  expect_text_refused(program, "computes with integers that follow from the tokens");
  program = fixture("counted.pt2");
  argument_of(node_of(program, "aten.ne.Scalar"), "other") = std::int64_t(1) << 32;
  expect_text_refused(program, "compares tokens with 4294967296, which is no token");
  const Graph graph = text_graph(fixture("counted.pt2"));
  EXPECT_EQ(count_of(graph, "documents"), 2);
}

}  // namespace pt2_text_test
}  // namespace millrace::pt2
