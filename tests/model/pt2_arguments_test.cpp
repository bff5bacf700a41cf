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

// A GRU, LSTM or RNN over three steps of 168 features, whose weights are both `p`, and what reads one of its results.
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
                        {lstm              ? 672
                         : c.kind == "gru" ? 504
                                           : 168,
                         168});
}

TEST(Pt2Arguments, RecurrentLayersBeginWithZeros) {
  EXPECT_EQ(operations_of(translated(recurrent_program({}))), (Names{"gather", "gru", "activation"}));
  EXPECT_EQ(operations_of(translated(recurrent_program({.kind = "lstm", .read = "h"}))),
            (Names{"gather", "lstm", "slice", "activation"}));
  expect_refused(recurrent_program({.state = 1}), "only a state of zeros is supported");
  EXPECT_EQ(operations_of(translated(recurrent_program({.kind = "lstm", .read = "c"}))),
            (Names{"gather", "lstm", "slice", "activation"}));
  const Graph relu = translated(recurrent_program({.kind = "rnn_relu"}));
  EXPECT_EQ(operations_of(relu), (Names{"gather", "rnn", "activation"}));
  const auto is_rnn = [](const Node& n) { return std::holds_alternative<RecurrentSpec>(n.spec); };
  EXPECT_EQ(std::get<RecurrentSpec>(std::ranges::find_if(relu.nodes, is_rnn)->spec).kind,
            RecurrentSpec::Kind::rnn_relu);
  expect_refused(recurrent_program({.layers = 2}), "has 2 weights, which is not supported");
  expect_refused(recurrent_program({.batch_first = false}), "batch_first=True");
  ExportedProgram unread = recurrent_program({.kind = "lstm"});  // what nothing reads is left out
  unread.nodes.insert(unread.nodes.end() - 1, node("relu.default", "cells", {{"self", tensor("c")}}));
  EXPECT_EQ(operations_of(translated(unread)), (Names{"gather", "lstm", "activation"}));
  ExportedProgram other = recurrent_program({});
  other.tensors[0].sizes = {504, 100};
  expect_refused(other, "where 168 inputs and 100 units need another one");
}

TEST(Pt2Arguments, WeightsOfRecurrentLayersAreCountedWithoutOverflow) {
  const auto with_weights = [](std::size_t count) {  // 2^62 layers of 4 weights, and one more
    ExportedProgram out = recurrent_program({.layers = (std::int64_t(1) << 62) + std::int64_t(count) / 4});
    for (auto& [name, argument] : node_of(out, "aten.gru.input").arguments) {
      if (name == "params") argument = std::vector<TensorName>(count, TensorName{"p"});
      if (name == "has_biases") argument = true;
    }
    return out;
  };
  expect_refused(with_weights(0), "has 0 weights, which is not supported");
  expect_refused(with_weights(4), "has 4 weights, which is not supported");
}

ExportedProgram einsum(const std::string& equation) {
  return program_of(
      {node("flatten.using_ints", "f", {{"self", tensor("x")}, {"start_dim", 2L}}),
       node("einsum.default", "y", {{"equation", equation}, {"tensors", std::vector<TensorName>{{"f"}, {"f"}}}})});
}

TEST(Pt2Arguments, EquationsOfEinsumAreProductsForEachRow) {
  const Graph graph = translated(einsum("bcx, bdx -> bdc"), {4, 12, 14, 3});
  const auto product = std::ranges::find_if(
      graph.nodes, [](const Node& n) { return std::holds_alternative<BatchedMatmulSpec>(n.spec); });
  ASSERT_NE(product, graph.nodes.end());
  const auto& s = std::get<BatchedMatmulSpec>(product->spec);
  EXPECT_EQ((std::vector<std::int64_t>{s.batch, s.m, s.n, s.k}), (std::vector<std::int64_t>{4, 3, 3, 168}));
  expect_refused(einsum("bxx,bcx->bc"), "'bxx,bcx->bc', which repeats a letter");
  expect_refused(einsum("...c,...d->...cd"), "repeats a letter or has others");
  expect_refused(einsum("bcx,bdx"), "products of two values, with ->");
  expect_refused(einsum("bcx,bdy->bcd"), "sums 'x' of one value alone");
  expect_refused(einsum("acx,bdx->abcd"), "no product of matrices for each row");
  expect_refused(einsum("bcx,bdx->bcz"), "axes of its own");
  expect_refused(einsum("bcxy,bdx->bcdy"), "has 3 axes where its equation has 'bcxy'");
  expect_refused(einsum("bcx,bxd->bcd"), "do not fit");
}

// The last node of the mask is called "m".
Graph masked(std::vector<ExportedNode> nodes, bool divides, double by) {
  nodes.insert(nodes.begin(), node("rand.default", "r", {{"size", integers({rows_symbol, 1, 1, 1})}}));
  nodes.push_back(node("div.Tensor", "d", {{"self", tensor("x")}, {"other", by}}));
  nodes.push_back(node("mul.Tensor", "y", {{"self", tensor(divides ? "d" : "x")}, {"other", tensor("m")}}));
  return translated(program_of(nodes));
}

TEST(Pt2Arguments, RandomRowsAreStochasticDepth) {
  const ExportedNode sum = node("add.Tensor", "s", {{"self", tensor("r")}, {"other", 0.75}}),
                     floor = node("floor.default", "m", {{"self", tensor("s")}}),
                     less = node("lt.Scalar", "m", {{"self", tensor("r")}, {"other", 0.75}}),
                     more = node("ge.Scalar", "m", {{"self", tensor("r")}, {"other", 0.25}});
  for (const auto& nodes : {std::vector{sum, floor}, std::vector{less}, std::vector{more}}) {
    const Graph graph = masked(nodes, true, 0.75);
    EXPECT_EQ(operations_of(graph), (Names{"dropout", "gather"}));
    const auto& s = std::get<DropoutSpec>(graph.nodes[0].spec);
    EXPECT_TRUE(s.whole_rows);
    EXPECT_FLOAT_EQ(s.probability, 0.25f);
  }
  // Other factors stay.
  EXPECT_EQ(operations_of(masked({less}, true, 0.5)), (Names{"affine", "dropout", "gather"}));
  const auto drawn = [](const Sizes& sizes) {
    return program_of({node("rand.default", "r", {{"size", integers(sizes)}}),
                       node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("r")}})});
  };
  expect_refused(drawn({rows_symbol, 3, 1, 1}), "not one for each row");
  expect_refused(program_of({node("rand.default", "r", {{"size", integers({rows_symbol, 1, 1, 1})}}),
                             node("lt.Scalar", "m", {{"self", tensor("r")}, {"other", 0.0}}),
                             node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("m")}})}),
                 "keeps rows with the probability 0");
  expect_refused(program_of({node("lt.Scalar", "y", {{"self", tensor("x")}, {"other", 0.5}})}),
                 "stochastic depth only");
  expect_refused(program_of({node("rand.default", "r", {{"size", integers({rows_symbol, 1, 1, 1})}}), less,
                             node("mul.Tensor", "first", {{"self", tensor("x")}, {"other", tensor("m")}}),
                             node("mul.Tensor", "y", {{"self", tensor("first")}, {"other", tensor("m")}})}),
                 "drops the rows that another product drops");
}

TEST(Pt2Arguments, ElementsAreAddedInEveryModeOfPad) {
  const auto index_of = [](const std::string& mode) {
    const Graph graph = translated(program_of(
        {node("pad.default", "y", {{"self", tensor("x")}, {"pad", integers({2, 1, 0, 0})}, {"mode", mode}})}));
    const auto& index = std::get<GatherSpec>(graph.nodes[0].spec).index;
    return std::vector<std::int32_t>{index[0], index[1], index[2], index[15], index[16]};
  };
  using Index = std::vector<std::int32_t>;
  EXPECT_EQ(index_of("replicate"), (Index{0, 0, 0, 13, 13}));
  EXPECT_EQ(index_of("reflect"), (Index{2, 1, 0, 13, 12}));
  EXPECT_EQ(index_of("circular"), (Index{12, 13, 0, 13, 0}));
  EXPECT_EQ(index_of("constant"), (Index{-1, -1, 0, 13, -1}));
  const auto padded = [](std::int64_t before, const std::string& mode) {
    return program_of(
        {node("pad.default", "y", {{"self", tensor("x")}, {"pad", integers({before, 0})}, {"mode", mode}})});
  };
  expect_refused(padded(14, "reflect"), "repeats more elements");
  expect_refused(padded(15, "circular"), "repeats more elements");
}

TEST(Pt2Arguments, SlopesBelowZero) {
  const Graph graph =
      translated(program_of({node("leaky_relu.default", "y", {{"self", tensor("x")}, {"negative_slope", 0.25}})}));
  EXPECT_EQ(std::get<PreluSpec>(graph.nodes[0].spec).slope, 0.25f);
  const Graph learned =
      translated(with_parameter({node("prelu.default", "y", {{"self", tensor("x")}, {"weight", tensor("p")}})}, {3}));
  EXPECT_EQ(std::get<PreluSpec>(learned.nodes[0].spec).slopes, 3);
  EXPECT_EQ(learned.parameters[0].name, "gamma");
  expect_refused(with_parameter({node("prelu.default", "y", {{"self", tensor("x")}, {"weight", tensor("p")}})}, {2}),
                 "prelu: 2 slopes for an input of 4x12x14x3");
}

// An image and numbers, as two parts of the samples.
ModelSpec with_two_inputs(ExportedProgram program) {
  program.inputs.push_back({.name = "numbers"});
  program.user_inputs.push_back({"numbers", ScalarType::f32, {2, 5}, {true, false}});
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = 5;
  InputSpec image, numbers;
  spec.inputs = {{"x", 0, {12, 14, 3}, DType::u8, image}, {"numbers", 512, {5}, DType::f32, numbers}};
  spec.exported = std::make_shared<const ExportedProgram>(std::move(program));
  return spec;
}

TEST(Pt2Arguments, AnInputThatTheNetworkIgnoresIsNamed) {
  const auto refused = [](const ExportedProgram& program) {
    return test::message_of(
        [&] {
          build_model(with_two_inputs(program), {4, {544}, DType::u8, {}, true}, DType::f32, Mode::train);
        },
        Exit::config);
  };
  const ExportedProgram program = fixture("cnn.pt2");
  EXPECT_EQ(refused(program),
            "model.file: " + program.path.string() + " does not read its input 'numbers'. export it without it");
  ExportedProgram fixed = program;
  fixed.user_inputs[0].dynamic.assign(4, false);
  EXPECT_NE(refused(fixed).find("dynamic_shapes=({0: batch}, {0: batch}), where batch = torch.export.Dim(\"batch\")"),
            std::string::npos)
      << refused(fixed);
}

}  // namespace pt2_arguments_test
}  // namespace millrace::pt2
