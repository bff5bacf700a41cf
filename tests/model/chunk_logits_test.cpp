#include <gtest/gtest.h>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace chunk_logits_test {

using namespace test;

struct Bench : CpuContext, ProgramFixture {
  Bench(const ModelSpec& spec, const ModelBatch& batch, std::int64_t logits_memory, DType dtype)
      : ProgramFixture(*compute.device, *compute.backend, spec, batch, 1, dtype,
                       [=](Graph& graph) { graph.logits_memory = logits_memory; }) {
    for (std::size_t k = 0; k < y.size(); k += 5) y[k] = -1;  // positions that do not count
  }
};

// The last layer shares its weights with the embedding, or has weights of its own and a bias.
ModelSpec language_model(bool tied) {
  ModelSpec spec;
  spec.name = "layers";
  spec.tokens = true;
  spec.outputs = 256;
  spec.label_smoothing = 0.1f;
  spec.layers = {"embedding 32 as=wte",
                 "residual {",
                 "layernorm",
                 "linear 32 axis=last",
                 "gelu",
                 "}",
                 "layernorm",
                 tied ? "linear outputs axis=last bias=off weights=wte" : "linear outputs axis=last"};
  return spec;
}

const ModelBatch batch{6, {20}, DType::u8, {20}, true};
constexpr std::int64_t row_bytes = 20 * 256 * 4;

const LinearCrossEntropySpec* chunked(const Graph& graph) {
  return std::get_if<LinearCrossEntropySpec>(&graph.nodes.back().spec);
}

TEST(ChunkLogits, LossAndGradientsEqualThoseOfTheWholeProduct) {
  for (const bool tied : {true, false})
    for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-6}, std::pair{DType::bf16, 5e-3}}) {
      SCOPED_TRACE(tied);
      SCOPED_TRACE(name_of(dtype));
      const std::int64_t two_rows = 2 * row_bytes * std::int64_t(size_of(dtype)) / 4;
      Bench whole(language_model(tied), batch, 0, dtype), parts(language_model(tied), batch, two_rows, dtype);
      ASSERT_TRUE(chunked(parts.program->graph()));
      EXPECT_EQ(chunked(parts.program->graph())->chunk_rows, 2);
      EXPECT_FALSE(chunked(whole.program->graph()));
      for (const bool first : {true, false}) {
        const double expected = whole.run(first);
        EXPECT_NEAR(parts.run(first), expected, 1e-6 * expected);
        EXPECT_LT(relative_error(parts.gradient, whole.gradient), tolerance);
        EXPECT_EQ(parts.state.losses[0].counted, whole.state.losses[0].counted);
        EXPECT_EQ(parts.state.losses[0].top5, whole.state.losses[0].top5);
      }
      EXPECT_LT(parts.program->plan().arena_bytes, whole.program->plan().arena_bytes);
    }
}

CompiledGraph compiled(std::int64_t rows, std::int64_t logits_memory, Mode mode = Mode::train) {
  CpuContext cpu;
  ModelBatch of = batch;
  of.rows = rows;
  Graph graph = build_model(language_model(false), of, DType::f32, mode);
  graph.logits_memory = logits_memory;
  return compile_graph(*cpu.compute.backend, std::move(graph), -1);
}
Graph rewritten(std::int64_t rows, std::int64_t logits_memory, Mode mode = Mode::train) {
  return compiled(rows, logits_memory, mode).graph;
}

TEST(ChunkLogits, ChunksAreAsLargeAsTheLimitAllows) {
  EXPECT_FALSE(chunked(rewritten(6, 6 * row_bytes)));
  EXPECT_EQ(chunked(rewritten(6, 6 * row_bytes - 1))->chunk_rows, 3);
  EXPECT_EQ(chunked(rewritten(6, 6 * row_bytes - 1, Mode::infer))->chunk_rows, 3);
  EXPECT_EQ(chunked(rewritten(6, 1))->chunk_rows, 1);
  EXPECT_EQ(chunked(rewritten(7, 3 * row_bytes))->chunk_rows, 1);  // a chunk divides the rows
  EXPECT_FALSE(chunked(rewritten(1, 1)));
}

TEST(ChunkLogits, CountsTheSameOperations) {
  EXPECT_DOUBLE_EQ(rewritten(6, row_bytes).forward_flops(), rewritten(6, 0).forward_flops());
  for (const Mode mode : {Mode::train, Mode::infer})
    EXPECT_DOUBLE_EQ(compiled(6, row_bytes, mode).cost().flops, compiled(6, 0, mode).cost().flops);
}

}  // namespace chunk_logits_test
}  // namespace millrace
