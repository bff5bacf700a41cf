// What the translation of networks of PyTorch refuses, and the axes of values by themselves.
#include "pt2_programs.hpp"

namespace millrace::pt2 {
namespace pt2_import_test {

using namespace test_programs;

TEST(Pt2Import, ParametersHaveTheNamesAndShapesOfPyTorch) {
  const Graph graph = build(fixture("cnn.pt2"));
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters) names.push_back(p.name);
  EXPECT_EQ(names.front(), "stem.weight");
  EXPECT_EQ(names.back(), "fc.bias");
  EXPECT_EQ(std::ranges::count(names, "block.bn2.weight"), 1);
  EXPECT_EQ(graph.stats.size(), 3u);
  EXPECT_EQ(graph.stats[1].name, "block.bn1");
  // The linear layer reads (8, 3, 4) of PyTorch, stored as (3, 4, 8).
  const ArchivePlace& place = graph.parameters[graph.parameters.size() - 2].archive;
  EXPECT_EQ(place.extents, (Shape{5, 8, 12}));
  EXPECT_EQ(place.strides[1], 1);
  EXPECT_EQ(place.strides[2], 8);
  EXPECT_EQ(unused_parameters(fixture("cnn.pt2")), (std::vector<std::string>{"unused.weight", "unused.bias"}));
  EXPECT_EQ(graph.stats.at(0).momentum, 0.2f);
}

TEST(Pt2Import, UnknownOperationsAreNamedWithTheirPlaceInPython) {
  ExportedProgram program = fixture("cnn.pt2");
  node_of(program, "aten.max_pool2d.default").target = "aten.fft_rfft2.default";
  for (ExportedNode& one : program.nodes)
    if (one.target == "aten.relu_.default") one.target = "aten.erf_.default";
  expect_refused(program, "aten.erf_.default (3 nodes, the first is 'relu_'");
  expect_refused(program, "; aten.fft_rfft2.default (1 node, 'max_pool2d' in pool, tests/parity/pt2_models.py:");
  EXPECT_TRUE(understands("aten.relu_.default"));
  EXPECT_FALSE(understands("aten.erf.default"));
  EXPECT_FALSE(understands("relu"));
}

TEST(Pt2Import, OtherInputsAreRefused) {
  expect_refused(fixture("cnn.pt2"), "takes samples of (N, 3, 12, 14), but the data has 4x12x14x4", {12, 14, 4});
  ExportedProgram program = fixture("cnn.pt2");
  program.user_inputs[0].dynamic.assign(4, false);
  expect_refused(program, "export it with dynamic_shapes=({0: torch.export.Dim(\"batch\")},)");
  program = fixture("cnn.pt2");
  program.outputs.push_back("x");
  expect_refused(program, "has 2 results. one is supported");
}

TEST(Pt2Import, ArgumentsWithoutAMeaningHereAreRefused) {
  const auto with = [](const char* target, const char* name, const Argument& value) {
    ExportedProgram program = fixture("cnn.pt2");
    ExportedNode& changed = node_of(program, target);
    std::erase_if(changed.arguments, [&](const auto& argument) { return argument.first == name; });
    changed.arguments.emplace_back(name, value);
    return program;
  };
  expect_refused(with("aten.batch_norm.default", "training", false), "evaluation mode");
  expect_refused(with("aten.max_pool2d.default", "dilation", integers({2, 2})), "dilation");
  expect_refused(with("aten.max_pool2d.default", "padding", integers({1, 1, 1})), "'padding' of 3 numbers");
  expect_refused(with("aten.conv2d.default", "stride", integers({0, 0})), "negative stride");
  expect_refused(with("aten.linear.default", "weight", tensor("x")), "no parameter");
  expect_refused(with("aten.linear.default", "input", tensor("p_fc_weight")), "parameter alone");
  expect_refused(with("aten.batch_norm.default", "momentum", 0.0), "cumulative averages");
}

ExportedProgram square_program(const std::vector<ExportedNode>& nodes) {
  ExportedProgram program = program_of(nodes);
  program.user_inputs[0].sizes = {2, 3, 12, 12};
  return program;
}

TEST(Pt2Import, ValuesAreCopiedIntoTheOrderThatIsNeeded) {
  const ExportedNode permuted = node("permute.default", "p", {{"self", tensor("x")}, {"dims", integers({0, 2, 3, 1})}});
  EXPECT_EQ(operations_of(translated(
                program_of({permuted, node("max_pool2d.default", "y", {{"self", tensor("p")}, {"kernel_size", 1L}})}))),
            (Names{"gather", "pool", "gather"}));  // the result is returned in the order of PyTorch
  const ExportedNode turned = node("transpose.int", "t", {{"self", tensor("x")}, {"dim0", 2L}, {"dim1", 3L}});
  const Shape square{4, 12, 12, 3};
  const Graph sum =
      translated(square_program({turned, node("add.Tensor", "a", {{"self", tensor("x")}, {"other", tensor("t")}}),
                                 node("add.Tensor", "b", {{"self", tensor("a")}, {"other", tensor("t")}})}),
                 square);
  EXPECT_EQ(operations_of(sum), (Names{"gather", "add", "add", "gather"}));  // one copy for both sums
  const auto& copy = std::get<GatherSpec>(sum.nodes[0].spec);
  EXPECT_EQ(copy.size, 3);
  EXPECT_EQ(copy.index.size(), 144);
  EXPECT_EQ(copy.index[1], 12);
  EXPECT_EQ(operations_of(translated(
                square_program({turned, node("cat.default", "y",
                                             {{"tensors", std::vector<TensorName>{{"x"}, {"t"}}}, {"dim", 1L}})}),
                square)),
            (Names{"gather", "concat", "gather"}));
  expect_refused(program_of({node("view.default", "y", {{"self", tensor("x")}, {"size", integers({2, -1})}})}),
                 "cut across");
  expect_refused(program_of({node("view.default", "y", {{"self", tensor("x")}, {"size", integers({-1, 11})}})}),
                 "divides (N, 3, 12, 14) into parts of 11");
}

TEST(Pt2Import, ConstantsAreComputedBeforeTheTraining) {
  const auto with_mask = [](const Argument& fill, std::int64_t end) {
    return program_of(
        {node("zeros.default", "z", {{"size", integers({12, 14})}}),
         node("slice.Tensor", "part", {{"self", tensor("z")}, {"dim", 1L}, {"start", 2L}, {"end", end}}),
         node("fill_.Scalar", "filled", {{"self", tensor("part")}, {"value", fill}}),
         node("eq.Scalar", "mask", {{"self", tensor("z")}, {"other", 3L}}),
         node("masked_fill.Scalar", "y", {{"self", tensor("x")}, {"mask", tensor("mask")}, {"value", -1.0}})});
  };
  const Graph graph = translated(with_mask(3L, 4));
  EXPECT_EQ(operations_of(graph), (Names{"affine", "gather"}));
  const auto& affine = std::get<AffineSpec>(graph.nodes[0].spec);
  EXPECT_EQ(affine.inner, 3);
  EXPECT_EQ(affine.scale.size(), 168);
  EXPECT_EQ(affine.offset[1], 0);
  EXPECT_EQ(affine.offset[2], -1);
  EXPECT_EQ(affine.scale[17], 0);  // in the second line
  EXPECT_EQ(operations_of(translated(with_mask(2L, 4))), (Names{"affine", "gather"}));
  // Numbers, and what is the same for all rows.
  EXPECT_EQ(operations_of(translated(program_of({node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", 0.5}})}))),
            (Names{"affine", "gather"}));
  EXPECT_EQ(operations_of(translated(program_of({node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", 1L}})}))),
            Names{"gather"});
}

// A mask that is a buffer, a factor of another type, and constants that Python made.
TEST(Pt2Import, BuffersAndConstantsOfTheArchiveAreRead) {
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = 10;
  spec.exported = std::make_shared<const ExportedProgram>(fixture("versions/v2.15_dyn.pt2"));
  const Graph graph = build_model(spec, {4, {8, 8, 1}, DType::u8, {}, true}, DType::f32, Mode::train);
  std::vector<AffineSpec> found;
  for (const Node& node : graph.nodes)
    if (const auto* affine = std::get_if<AffineSpec>(&node.spec)) found.push_back(*affine);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].scale.values(), (std::vector<float>{0, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(found[0].offset[0], -1);
  EXPECT_EQ(found[1].scale.values(), std::vector<float>{2});
  EXPECT_EQ(found[2].offset[9], 9);
  EXPECT_EQ(found[3].offset[9], 10);
}

TEST(Pt2Import, HostileConstantsAreRefused) {
  const auto with = [](const ExportedNode& made) {
    return program_of({made, node("add.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("c")}})});
  };
  const std::int64_t huge = std::int64_t(1) << 40;
  expect_refused(with(node("zeros.default", "c", {{"size", integers({huge, huge})}})), "constant of more than");
  expect_refused(with(node("zeros.default", "c", {{"size", integers({-3})}})), "an extent below 0");
  expect_refused(with(node("arange.default", "c", {{"end", huge}})), "too far");
  expect_refused(with(node("zeros.default", "c", {{"size", integers({7})}})), "whose extents do not fit");
  const auto after = [&](const ExportedNode& last) {
    return program_of({node("arange.default", "i", {{"end", 13L}}), last,
                       node("add.Tensor", "y", {{"self", tensor("c")}, {"other", 1L}})});
  };
  expect_refused(after(node("index_select.default", "c", {{"self", tensor("x")}, {"dim", 2L}, {"index", tensor("i")}})),
                 "has the index 12 of 12");
  expect_refused(
      after(node("index.Tensor", "c", {{"self", tensor("i")}, {"indices", std::vector<TensorName>{{"i"}, {"i"}}}})),
      "more indices than axes");
  expect_refused(after(node("expand.default", "c", {{"self", tensor("i")}, {"size", integers({13, 1})}})),
                 "several elements");
  expect_refused(after(node("pad.default", "c", {{"self", tensor("x")}, {"pad", integers({huge, huge})}})),
                 "constant of more than");
  expect_refused(after(node("pad.default", "c", {{"self", tensor("x")}, {"pad", integers({-20, 0})}})), "no elements");
  expect_refused(after(node("matmul.default", "c", {{"self", tensor("x")}, {"other", tensor("x")}})), "do not fit");
  expect_refused(after(node("fill_.Scalar", "c", {{"self", tensor("x")}, {"value", 1L}})),
                 "do not depend on the samples only");
}

// Views that were made before an operation in place are not what PyTorch would read.
TEST(Pt2Import, OverwrittenViewsAreRefused) {
  const ExportedNode view = node("flatten.using_ints", "f", {{"self", tensor("r")}, {"start_dim", 1L}});
  const ExportedNode first = node("relu.default", "r", {{"self", tensor("x")}});
  const ExportedNode in_place = node("tanh_.default", "t", {{"self", tensor("r")}});
  expect_refused(program_of({first, view, in_place, node("silu.default", "y", {{"self", tensor("f")}})}),
                 "overwritten");
  // Under its own name, the overwritten value is the new one.
  ExportedProgram program = program_of({first, in_place, node("silu.default", "y", {{"self", tensor("r")}}),
                                        node("flatten.using_ints", "f", {{"self", tensor("y")}, {"start_dim", 1L}})});
  ModelSpec spec;
  spec.name = "pt2";
  spec.outputs = 3 * 12 * 14;
  spec.pointwise_loss = PointwiseLossSpec::Kind::mse;
  spec.exported = std::make_shared<const ExportedProgram>(program);
  GraphBuilder builder({{4, 12, 14, 3}, DType::f32, {4, spec.outputs}, false}, DType::f32, Mode::train);
  build_pt2(builder, Graph::x, spec);
  const Graph graph = builder.finish();
  ASSERT_GE(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[2].src[0], graph.nodes[1].dst);
}

TEST(Pt2Axes, ViewsAndPermutationsOnlyRegroup) {
  Axes axes = Axes::image(6, {4, 10});
  EXPECT_EQ(axes.text(), "(N, 6, 4, 10)");
  const Atoms stored = axes.stored;
  axes.permute({0, 2, 3, 1});
  EXPECT_EQ(axes.stored, stored);
  EXPECT_TRUE(axes.view({rows_symbol, 40, 2, 3}));
  EXPECT_EQ(axes.text(), "(N, 40, 2, 3)");
  EXPECT_EQ(axes.stored.size(), 5u);
  EXPECT_TRUE(axes.view({rows_symbol * 8, 5, 6}));
  EXPECT_EQ(axes.text(), "(N x 8, 5, 6)");
  EXPECT_FALSE(axes.view({rows_symbol * 8, 5, 5}));
  EXPECT_FALSE(axes.view({240, rows_symbol}));  // the rows are outermost
  EXPECT_FALSE(axes.view({rows_symbol, -240}));
  EXPECT_FALSE(axes.view({rows_symbol, 240, 0}));
  EXPECT_EQ(axes.text(), "(N x 8, 5, 6)");
  EXPECT_FALSE(axes.begins_with_rows());
}

TEST(Pt2Axes, AlignedAxesHaveEqualAtoms) {
  Axes whole = Axes::contiguous({rows_symbol, 24}), parts = Axes::contiguous({rows_symbol, 2, 12});
  ASSERT_TRUE(parts.view({rows_symbol, 24}));
  ASSERT_TRUE(align(whole, parts, false));
  EXPECT_EQ(whole.logical[1].size(), 2u);
  Axes thirds = Axes::contiguous({rows_symbol, 3, 8});
  ASSERT_TRUE(thirds.view({rows_symbol, 24}));
  EXPECT_FALSE(align(thirds, parts, false));  // neither 2 x 12 nor 3 x 8 divides the other
}

Names operations_of_nodes(const std::vector<ExportedNode>& nodes) {
  return operations_of(translated(program_of(nodes)));
}

TEST(Pt2Import, ConditionsThatHoldEverywhereCopy) {
  const auto condition = [](const Sizes& sizes, bool holds) {
    return node("full.default", "c", {{"size", integers(sizes)}, {"fill_value", holds}});
  };
  const auto chosen = [](const std::string& x, const Argument& other) {
    return node("where.ScalarOther", "w", {{"condition", tensor("c")}, {"self", tensor(x)}, {"other", other}});
  };
  // The rows are joined with another axis, as those of scores with the heads.
  EXPECT_EQ(operations_of_nodes({node("view.default", "v", {{"self", tensor("x")}, {"size", integers({-1, 12, 14})}}),
                                 condition({12, 14}, false), chosen("v", -1e9)}),
            (Names{"affine", "gather"}));
  EXPECT_EQ(operations_of_nodes({condition({12, 14}, true), chosen("x", -1e9)}), Names{"gather"});
  EXPECT_EQ(operations_of_nodes({condition({}, true), chosen("x", 0.0),
                                 node("mul_.Tensor", "doubled", {{"self", tensor("w")}, {"other", 2.0}}),
                                 node("add.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("doubled")}})}),
            (Names{"affine", "add", "gather"}));
  expect_refused(program_of({node("mean.dim", "v", {{"self", tensor("x")}, {"dim", integers({2})}, {"keepdim", true}}),
                             node("full.default", "o", {{"size", integers({12, 14})}, {"fill_value", 1.0}}),
                             condition({}, true), chosen("v", tensor("o"))}),
                 "has a 'other' of several numbers");
}

// x * factor + cat(-x[half:], x[:half]) * factor
std::vector<ExportedNode> rotated(const ExportedNode& factor, std::int64_t dim, std::int64_t half) {
  const auto product = [](const std::string& name, const std::string& of) {
    return node("mul.Tensor", name, {{"self", tensor(of)}, {"other", tensor("f")}});
  };
  return {factor,
          node("slice.Tensor", "end", {{"self", tensor("x")}, {"dim", dim}, {"start", half}, {"end", INT64_MAX}}),
          node("neg.default", "n", {{"self", tensor("end")}}),
          node("slice.Tensor", "begin", {{"self", tensor("x")}, {"dim", dim}, {"start", 0L}, {"end", half}}),
          node("cat.default", "t", {{"tensors", std::vector<TensorName>{{"n"}, {"begin"}}}, {"dim", dim - 4}}),
          product("a", "x"),
          product("b", "t"),
          node("add.Tensor", "y", {{"self", tensor("a")}, {"other", tensor("b")}})};
}

TEST(Pt2Import, RotationsOfAnyAxisAndByValues) {
  const ExportedNode constant = node("full.default", "f", {{"size", integers({12, 14})}, {"fill_value", 2.0}});
  const Graph graph = translated(program_of(rotated(constant, 2, 6)));
  EXPECT_EQ(operations_of(graph), (Names{"gather", "affine", "affine", "add", "gather"}));
  EXPECT_EQ(std::get<GatherSpec>(graph.nodes[0].spec).index.values(),
            (std::vector<std::int32_t>{6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5}));
  const Names by_values = operations_of_nodes(rotated(node("sigmoid.default", "f", {{"self", tensor("x")}}), 3, 7));
  EXPECT_EQ(std::ranges::count(by_values, "activation"), 1);
  EXPECT_EQ(std::ranges::count(by_values, "scale_by"), 2);
}

TEST(Pt2Import, WhatMovesOrPoolsTheRowsIsRefused) {
  expect_refused(program_of({node("permute.default", "p", {{"self", tensor("x")}, {"dims", integers({1, 2, 0, 3})}}),
                             node("adaptive_avg_pool2d.default", "y",
                                  {{"self", tensor("p")}, {"output_size", integers({5, 14})}})}),
                 "over the rows");
  expect_refused(program_of({node("sym_size.int", "n", {{"self", tensor("x")}, {"dim", 0L}}),
                             node("arange.default", "r", {{"end", SymbolName{"n"}}}),
                             node("index.Tensor", "y",
                                  {{"self", tensor("x")}, {"indices", std::vector<TensorName>{{""}, {"r"}}}})}),
                 "takes another element for each row");
  expect_refused(program_of({node("full.default", "c", {{"size", integers({31})}, {"fill_value", 1.0}}),
                             node("diff.default", "d", {{"self", tensor("c")}, {"n", 17L}}),
                             node("mul.Tensor", "y", {{"self", tensor("x")}, {"other", tensor("d")}})}),
                 "takes differences more than 16 times");
}

TEST(Pt2Import, AxesThatKeepTheirSizeAreNotInterpolated) {
  EXPECT_EQ(
      operations_of_nodes({node(
          "upsample_bilinear2d.vec", "y",
          {{"input", tensor("x")}, {"align_corners", false}, {"scale_factors", std::vector<double>{1.05, 1.06}}})}),
      Names{"gather"});
}

}  // namespace pt2_import_test
}  // namespace millrace::pt2
