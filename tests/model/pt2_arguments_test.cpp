// Arguments at the edges of what can be translated: bounds, types of constants, large numbers, parts of parameters.
#include <limits>

#include "pt2_programs.hpp"

namespace millrace::pt2 {
namespace pt2_arguments_test {

using namespace test_programs;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

ExportedNode clamp_between(const Argument& low, const Argument& high) {
  return node("clamp.default", "y", {{"self", tensor("x")}, {"min", low}, {"max", high}});
}

TEST(Pt2Arguments, ValuesWithinTheBoundsAreNotRounded) {
  const Graph graph = translated(program_of({clamp_between(-1e4, std::monostate())}));
  EXPECT_EQ(operations_of(graph), (Names{"affine", "activation", "add", "gather"}));
  const auto& affine = std::get<AffineSpec>(graph.nodes[0].spec);  // x + relu(-1e4 - x)
  EXPECT_EQ(affine.scale[0], -1);
  EXPECT_EQ(affine.offset[0], -1e4f);
  EXPECT_EQ(operations_of(translated(program_of({clamp_between(std::monostate(), 2L)}))),
            (Names{"affine", "activation", "affine", "add", "gather"}));
  EXPECT_EQ(operations_of(translated(program_of({clamp_between(0L, infinity)}))), (Names{"activation", "gather"}));
  const double most = std::numeric_limits<float>::max();
  EXPECT_EQ(operations_of(translated(program_of({clamp_between(-infinity, infinity)}))), Names{"gather"});
  EXPECT_EQ(operations_of(translated(program_of({clamp_between(-most, most)}))), Names{"gather"});
  expect_refused(program_of({clamp_between(infinity, std::monostate())}), "has the bound inf");
}

// What masks 12 x 14 values of a constant `c`, which is a mask if it is boolean, and otherwise indexes them.
Graph inverted(std::vector<ExportedNode> nodes) {
  nodes.push_back(node("bitwise_not.default", "mask", {{"self", tensor("c")}}));
  nodes.push_back(node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("mask")}}));
  return translated(program_of(nodes));
}
float factor_of(const Graph& graph) { return std::get<AffineSpec>(graph.nodes[0].spec).scale[0]; }

TEST(Pt2Arguments, ConstantsHaveTheTypesOfPyTorch) {
  const ExportedNode yes = node("full.default", "t", {{"size", integers({14})}, {"fill_value", true}});
  const auto like = [](const std::string& kind) { return node(kind, "c", {{"self", tensor("t")}}); };
  EXPECT_EQ(factor_of(inverted({yes, like("zeros_like.default")})), 1);  // not False; ~0 would be -1
  EXPECT_EQ(operations_of(inverted({yes, like("zeros_like.default")})), (Names{"affine", "gather"}));
  EXPECT_EQ(factor_of(inverted({yes, like("clone.default")})), 0);
  const ExportedNode number = node("full.default", "t", {{"size", integers({14})}, {"fill_value", 1L}});
  EXPECT_EQ(factor_of(inverted({number, like("zeros_like.default")})), -1);
  EXPECT_EQ(factor_of(inverted({number, node("new_full.default", "c",
                                             {{"self", tensor("t")}, {"size", integers({14})}, {"fill_value", 2.5}})})),
            -3);
  EXPECT_EQ(
      factor_of(inverted({yes, node("ones_like.default", "c", {{"self", tensor("t")}, {"dtype", ScalarType::i64}})})),
      -2);
}

TEST(Pt2Arguments, NumbersThatOverflowAreRefused) {
  const auto narrow = [](std::int64_t start, std::int64_t length) {
    return program_of(
        {node("narrow.default", "y", {{"self", tensor("x")}, {"dim", 2L}, {"start", start}, {"length", length}})});
  };
  expect_refused(narrow(1, huge), "takes no elements");
  expect_refused(narrow(huge, 1), "takes no elements");
  const auto sliced = [](std::int64_t start, std::int64_t step) {
    return program_of(
        {node("slice.Tensor", "y", {{"self", tensor("x")}, {"dim", 2L}, {"start", start}, {"step", step}})});
  };
  const Graph one = translated(sliced(1, huge), {4, 12, 14, 3});
  EXPECT_EQ(std::get<GatherSpec>(one.nodes[0].spec).index.values(), std::vector<std::int32_t>{1});
  expect_refused(program_of({node("split_with_sizes.default", "y",
                                  {{"self", tensor("x")}, {"dim", 2L}, {"split_sizes", integers({6, huge, huge})}})}),
                 "parts that do not fit");
}

TEST(Pt2Arguments, AxesAreNamedOnce) {
  expect_refused(program_of({node("mean.dim", "y", {{"self", tensor("x")}, {"dim", integers({2, -2})}})}), "twice");
  expect_refused(program_of({node("squeeze.dims", "y", {{"self", tensor("x")}, {"dim", integers({1, 1})}})}), "twice");
}

// A network of these nodes with a parameter `p` of (2, 3, 1, 1).
ExportedProgram with_parameter(const std::vector<ExportedNode>& nodes, const Sizes& sizes) {
  ExportedProgram program = program_of(nodes);
  StoredTensor stored;
  stored.name = "gamma";
  stored.sizes = sizes;
  stored.strides.assign(sizes.size(), 1);
  stored.parameter = stored.requires_grad = true;
  program.tensors.push_back(stored);
  program.inputs.insert(program.inputs.begin(), {.name = "p", .kind = GraphInput::Kind::parameter, .tensor = 0});
  return program;
}

TEST(Pt2Arguments, PartsOfParametersAreNoWholeOnes) {
  const ExportedNode part = node("select.int", "part", {{"self", tensor("p")}, {"dim", 0L}, {"index", 0L}});
  const ExportedNode product = node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("part")}});
  expect_refused(with_parameter({part, product}, {2, 3, 1, 1}), "part of a parameter");
  const ExportedNode joined =
      node("cat.default", "y", {{"tensors", std::vector<TensorName>{{"part"}, {"f"}}}, {"dim", 1L}});
  const ExportedNode flat = node("flatten.using_ints", "f", {{"self", tensor("x")}, {"start_dim", 2L}});
  expect_refused(with_parameter({part, flat, joined}, {2, 1, 1, 168}), "joins a parameter");
  expect_refused(
      with_parameter({node("embedding.default", "y", {{"weight", tensor("p")}, {"indices", tensor("x")}})}, {5}),
      "no matrix");
}

// A GRU or LSTM over three steps of 168 features, whose weights are both `p`, and what reads one of its results.
struct RecurrentCase {
  std::string kind = "gru";
  double state = 0;
  std::int64_t layers = 1;
  bool batch_first = true;
  std::string read = "out";
};
ExportedProgram recurrent_program(const RecurrentCase& c) {
  const bool lstm = c.kind == "lstm";
  const ExportedNode flat = node("flatten.using_ints", "f", {{"self", tensor("x")}, {"start_dim", 2L}});
  const ExportedNode state = node("full.default", "s", {{"size", integers({1, 1, 168})}, {"fill_value", c.state}});
  const Argument states = lstm ? Argument(std::vector<TensorName>{{"s"}, {"s"}}) : tensor("s");
  ExportedNode layer = node(c.kind + ".input", "out",
                            {{"input", tensor("f")},
                             {"hx", states},
                             {"params", std::vector<TensorName>{{"p"}, {"p"}}},
                             {"has_biases", false},
                             {"num_layers", c.layers},
                             {"dropout", 0.0},
                             {"train", true},
                             {"bidirectional", false},
                             {"batch_first", c.batch_first}});
  layer.results = lstm ? Names{"out", "h", "c"} : Names{"out", "h"};
  return with_parameter({flat, state, layer, node("relu.default", "y", {{"self", tensor(c.read)}})},
                        {lstm ? 672 : 504, 168});
}

TEST(Pt2Arguments, RecurrentLayersBeginWithZerosAndReturnNoCells) {
  EXPECT_EQ(operations_of(translated(recurrent_program({}))), (Names{"gather", "gru", "activation"}));
  EXPECT_EQ(operations_of(translated(recurrent_program({.kind = "lstm", .read = "h"}))),
            (Names{"gather", "lstm", "slice", "activation"}));
  expect_refused(recurrent_program({.state = 1}), "only a state of zeros is supported");
  expect_refused(recurrent_program({.kind = "lstm", .read = "c"}), "returns c_n, which is read");
  expect_refused(recurrent_program({.layers = 2}), "has 2 weights, which is not supported");
  expect_refused(recurrent_program({.batch_first = false}), "batch_first=True");
  ExportedProgram other = recurrent_program({});
  other.tensors[0].sizes = {504, 100};
  expect_refused(other, "where 168 inputs and 100 units need another one");
}

}  // namespace pt2_arguments_test
}  // namespace millrace::pt2
