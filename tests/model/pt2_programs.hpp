// Small networks of PyTorch that a test writes node by node.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/model/pt2/import.hpp"
#include "millrace/model/zoo.hpp"
#include "model/pt2/axes.hpp"
#include "support/expect_error.hpp"

namespace millrace::pt2::test_programs {

inline ExportedProgram fixture(const std::string& name) {
  return read_exported_program(std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/" + name);
}

inline Graph build(ExportedProgram program, const Shape& sample = {12, 14, 3}) {
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = 5;
  spec.exported = std::make_shared<const ExportedProgram>(std::move(program));
  return build_model(spec, {4, sample, DType::u8, {}, true}, DType::f32, Mode::train);
}

inline void expect_refused(ExportedProgram program, const std::string& words, const Shape& sample = {12, 14, 3}) {
  const std::string message = test::message_of([&] { build(std::move(program), sample); }, Exit::config);
  EXPECT_TRUE(message.starts_with("model.file: ")) << message;
  EXPECT_NE(message.find(words), message.npos) << message;
}

inline ExportedNode& node_of(ExportedProgram& program, const std::string& target) {
  return *std::ranges::find(program.nodes, target, &ExportedNode::target);
}

inline Argument tensor(const std::string& name) { return TensorName{name}; }
inline Argument integers(const Sizes& values) { return std::vector<Integer>(values.begin(), values.end()); }

// A network of these nodes on an input x of (N, 3, 12, 14).
inline ExportedProgram program_of(const std::vector<ExportedNode>& nodes) {
  ExportedProgram program;
  program.path = "made.pt2";
  program.inputs.push_back({.name = "x"});
  program.user_inputs.push_back({"x", ScalarType::f32, {2, 3, 12, 14}, {true, false, false, false}});
  program.nodes = nodes;
  program.outputs = {nodes.back().results[0]};
  return program;
}

inline ExportedNode node(const std::string& target, const std::string& result,
                         std::vector<std::pair<std::string, Argument>> arguments) {
  ExportedNode out;
  out.name = result;
  out.target = "aten." + target;
  out.arguments = std::move(arguments);
  out.results = {result};
  out.source = "net.py:7";
  return out;
}

// The graph of these nodes alone, without an input pass and a loss.
inline Graph translated(const ExportedProgram& program, const Shape& batch = {4, 12, 14, 3}) {
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = batch.row_count();
  spec.pointwise_loss = PointwiseLossSpec::Kind::mse;
  spec.exported = std::make_shared<const ExportedProgram>(program);
  GraphBuilder builder({batch, DType::f32, {batch[0], spec.outputs}, false}, DType::f32, Mode::train);
  build_pt2(builder, Graph::x, spec);
  return builder.finish();
}

inline std::vector<std::string> operations_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Node& node : graph.nodes)
    if (!std::holds_alternative<ReshapeSpec>(node.spec)) out.push_back(name_of(node.spec));
  return out;
}
using Names = std::vector<std::string>;

}  // namespace millrace::pt2::test_programs
