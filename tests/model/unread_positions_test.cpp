// Slices that move to before the operations whose other positions nothing reads.
#include <gtest/gtest.h>

#include <map>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace unread_positions_test {

using namespace test;

const ModelBatch batch{3, {16, 16, 3}, DType::u8, {}, true};

ModelSpec vit(bool class_token_only = true) {
  ModelSpec spec;
  spec.name = "vit";
  spec.blocks = 3;
  spec.width = 24;
  spec.heads = 3;
  spec.patch = 4;
  spec.drop_path = class_token_only ? 0.2 : 0;
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}
ModelSpec layers(std::vector<std::string> lines) {
  ModelSpec spec = vit();
  spec.name = "layers";
  spec.layers = std::move(lines);
  return spec;
}

struct Rules : FusionRules {
  explicit Rules(bool partial = false) : partial_attention(partial) {}
  int max_fusion_level() const override { return 3; }
  bool has_partial_attention() const override { return partial_attention; }
  bool partial_attention;
};

Graph rewritten(const ModelSpec& spec, Mode mode = Mode::train) {
  return drop_unread_positions(build_model(spec, batch, DType::f32, mode), Rules());
}
std::map<std::string, std::int64_t> rows_of_linears(const Graph& graph) {
  std::map<std::string, std::int64_t> rows;
  for (const Node& node : graph.nodes)
    if (const auto* linear = std::get_if<LinearSpec>(&node.spec)) rows[node.name] = linear->src[0];
  return rows;
}
int slices(const Graph& graph) {
  return int(
      std::ranges::count_if(graph.nodes, [](const Node& n) { return std::holds_alternative<SliceSpec>(n.spec); }));
}

// Behind the last attention, 3 rows have one position each. Before it, they have 17.
TEST(UnreadPositions, OfAClassTokenOnlyTheLastAttentionAndWhatIsBeforeItSeeAllPositions) {
  for (const Mode mode : {Mode::train, Mode::infer}) {
    const Graph graph = rewritten(vit(), mode);
    auto rows = rows_of_linears(graph);
    EXPECT_EQ(rows["blocks.1.mlp.fc2"], 51);
    EXPECT_EQ(rows["blocks.2.attn.qkv"], 51);
    EXPECT_EQ(rows["blocks.2.attn.proj"], 3);
    EXPECT_EQ(rows["blocks.2.mlp.fc1"], 3);
    EXPECT_EQ(rows["blocks.2.mlp.fc2"], 3);
    EXPECT_EQ(rows["head"], 3);
    EXPECT_EQ(slices(graph), 2);  // of the attention and of the block's source
    for (const Node& node : graph.nodes)
      for (const int v : node.src)
        EXPECT_TRUE(v <= Graph::ids || graph.producer(v) < int(&node - graph.nodes.data())) << node.name;
  }
}

TEST(UnreadPositions, OnlyTheQueriesOfReadPositionsAskWhereTheBackendSupportsIt) {
  const Graph graph = drop_unread_positions(build_model(vit(), batch, DType::f32, Mode::train), Rules(true));
  EXPECT_EQ(slices(graph), 1);  // of the block's source
  std::vector<std::int64_t> asking;
  for (const Node& node : graph.nodes)
    if (const auto* attention = std::get_if<AttentionSpec>(&node.spec)) {
      asking.push_back(attention->asking());
      EXPECT_EQ(graph.values[std::size_t(node.dst)].shape, attention->dst());
    }
  EXPECT_EQ(asking, (std::vector<std::int64_t>{17, 17, 1}));
}

TEST(UnreadPositions, LossAndGradientsAreThoseOfTheWholeNetwork) {
  const ModelSpec written =
      layers({"conv 12 4 stride=4", "positions", "layernorm as=top", "linear 24 axis=last", "glu silu", "add top",
              "scale init=0.5", "tanh", "slice 2 2 axis=1", "relu", "linear outputs"});
  for (const ModelSpec& spec : {vit(), vit(false), written}) {
    CpuContext cpu;
    ProgramFixture whole(*cpu.compute.device, *cpu.compute.backend, spec, batch, 0),
        part(*cpu.compute.device, *cpu.compute.backend, spec, batch, 1);
    EXPECT_LT(part.program->plan().arena_bytes, whole.program->plan().arena_bytes);
    expect_near(part, whole, {1e-5, 1e-4, 1e-5});
  }
}

// Attention over an image is that over its positions, also where a part of the image is read: an axis of it is not one
// of the positions.
TEST(UnreadPositions, AttentionOverAnImageIsThatOverItsPositions) {
  for (const bool part : {false, true}) {
    std::vector<std::string> image{"conv 12 4 stride=4", "attention heads=1"},
        positions{"conv 12 4 stride=4", "reshape 16x12", "attention heads=1", "reshape 4x4x4"};
    for (std::vector<std::string>* lines : {&image, &positions}) {
      if (part) lines->push_back("slice 1 1 axis=0");
      lines->push_back("linear outputs");
    }
    CpuContext cpu;
    ProgramFixture expected(*cpu.compute.device, *cpu.compute.backend, layers(positions), batch, 0),
        actual(*cpu.compute.device, *cpu.compute.backend, layers(image), batch, 1);
    expect_near(actual, expected, {1e-5, 1e-4, 1e-5});
  }
}

TEST(UnreadPositions, ASliceStaysWhereAPositionDependsOnOthersOrMuchIsRead) {
  const std::vector<std::string> before{"conv 8 4 stride=4"}, after{"linear outputs"};
  const auto stays = [&](std::vector<std::string> lines) {
    lines.insert(lines.begin(), before.begin(), before.end());
    lines.insert(lines.end(), after.begin(), after.end());
    const Graph graph = build_model(layers(lines), batch, DType::f32, Mode::train);
    const Graph moved = drop_unread_positions(graph, Rules());
    return graph.nodes.size() == moved.nodes.size() &&
           std::ranges::equal(graph.nodes, moved.nodes, {}, &Node::name, &Node::name);
  };
  EXPECT_FALSE(stays({"relu", "slice 0 1 axis=0"}));
  EXPECT_FALSE(stays({"relu", "slice 0 2 axis=1"}));
  EXPECT_TRUE(stays({"relu", "slice 0 3 axis=0"}));         // of 4
  EXPECT_TRUE(stays({"relu", "slice 0 1 axis=2"}));         // a channel
  EXPECT_TRUE(stays({"dropout 0.5", "slice 0 1 axis=0"}));  // draws by position
  EXPECT_TRUE(stays({"groupnorm 2", "slice 0 1 axis=0"}));  // statistics over positions
  EXPECT_TRUE(stays({"relu as=a", "slice 0 1 axis=0 as=b", "globalpool from=a as=c", "linear 8 from=b", "add c"}));
}

TEST(UnreadPositions, AnOutputIsKeptWhole) {
  Graph graph = build_model(vit(), batch, DType::f32, Mode::infer);
  int sum = -1;
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<SliceSpec>(node.spec)) sum = node.src[0];
  const Shape all = graph.values[std::size_t(sum)].shape;
  graph.outputs = {sum};
  graph = drop_unread_positions(std::move(graph), Rules(true));
  EXPECT_GE(graph.producer(sum), 0);
  EXPECT_EQ(graph.values[std::size_t(sum)].shape, all);
  EXPECT_EQ(rows_of_linears(graph)["blocks.2.mlp.fc2"], 51);
}

}  // namespace unread_positions_test
}  // namespace millrace
