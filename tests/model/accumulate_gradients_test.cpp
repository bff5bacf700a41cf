// Gradients of values with several readers: which reader writes, which ones add, and what is left for separate passes.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace accumulate_gradients_test {

using namespace test;

// The CPU backend with layers that add to a float32 gradient. They compute the same as a separate pass, so the results
// are equal bit for bit.
struct Accumulating : ForwardingBackend {
  using ForwardingBackend::ForwardingBackend;
  std::int64_t refused_channels = 0;  // convolutions that read so many channels only write

  std::string why_not_fused(const Spec& spec) override {
    if (const auto* linear = std::get_if<LinearSpec>(&spec); linear && linear->accumulates_diff_src) return "";
    const auto* conv = std::get_if<ConvSpec>(&spec);
    if (!conv || !conv->accumulates_diff_src) return inner.why_not_fused(spec);
    EXPECT_FALSE(conv->produces_sums || conv->produces_diff_sums);
    return conv->src[-1] == refused_channels ? "too many channels" : "";
  }
  std::unique_ptr<Op> make(const Spec& spec) override {
    if (const auto* conv = std::get_if<ConvSpec>(&spec)) return of(*conv);
    if (const auto* linear = std::get_if<LinearSpec>(&spec)) return of(*linear);
    return inner.make(spec);
  }

 private:
  struct Adding : Op {
    Adding(std::unique_ptr<Op> op, std::int64_t count) : real(std::move(op)), scratch(std::size_t(count)) {}
    MemoryRequirements memory_requirements() const override { return real->memory_requirements(); }
    void forward(const OpArgs& args) override { real->forward(args); }
    void repack(const OpArgs& args) override { real->repack(args); }
    std::string implementation() const override { return real->implementation(); }
    void backward(const OpArgs& args) override {
      EXPECT_NE(args.diff_src[0].data, args.diff_dst.data) << "a product cannot add to what it reads";
      OpArgs own = args;
      own.diff_src[0].data = scratch.data();
      real->backward(own);
      for (std::size_t i = 0; i < scratch.size(); ++i) args.diff_src[0].as<float>()[i] += scratch[i];
    }
    std::unique_ptr<Op> real;
    std::vector<float> scratch;
  };
  template <class Layer>
  std::unique_ptr<Op> of(Layer layer) {
    const bool adds = std::exchange(layer.accumulates_diff_src, false);
    auto op = inner.make(layer);
    return adds ? std::make_unique<Adding>(std::move(op), layer.src.count()) : std::move(op);
  }
};

ModelSpec resnet(std::int64_t depth) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = depth;
  spec.width = 4;
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}

ModelSpec text(std::vector<std::string> lines) {
  ModelSpec spec = resnet(8);
  spec.name = "layers";
  spec.layers = std::move(lines);
  return spec;
}

struct Counts {
  int accumulated, passes;
  bool operator==(const Counts&) const = default;
};

CompiledGraph compiled(Backend& backend, const ModelSpec& model, int level, Mode mode = Mode::train) {
  return compile_graph(backend, build_model(model, {5, {12, 10, 3}, DType::u8, {}, true}, DType::f32, mode), level);
}
Counts counts(const CompiledGraph& graph) {
  return {count_stores(graph.gradient_stores, GradientStore::accumulate),
          count_stores(graph.gradient_stores, GradientStore::add_pass)};
}

TEST(AccumulateGradients, TheFirstConvolutionOfEveryBlockAddsToTheGradientOfTheBlock) {
  const CpuContext cpu;
  Accumulating backend(*cpu.compute.backend);
  for (const auto& [depth, blocks] : {std::pair{8, 3}, {50, 16}}) {
    const CompiledGraph zero = compiled(backend, resnet(depth), 0);
    EXPECT_EQ(counts(zero), (Counts{0, blocks})) << depth;
    for (const int level : {1, 2}) {
      const CompiledGraph fused = compiled(backend, resnet(depth), level);
      EXPECT_EQ(counts(fused), (Counts{blocks, 0})) << depth << " level " << level;
      for (const auto& adder : fused.gradient_adders) EXPECT_EQ(adder, nullptr);
      for (const Region& region : fused.plan.regions) EXPECT_EQ(region.name.find(".diff2"), region.name.npos);
      for (const std::string& note : fused.notes) EXPECT_EQ(note.find("several readers"), note.npos) << note;
    }
    EXPECT_EQ(counts(compiled(backend, resnet(depth), 1, Mode::infer)), (Counts{0, 0}));
  }
}

TEST(AccumulateGradients, GivesTheBitsOfSeparatePasses) {
  const CpuContext cpu;
  Accumulating backend(*cpu.compute.backend);
  for (const int level : {1, 2})
    for (const ModelSpec& model :
         {resnet(8), text({"conv 8 3 pad=1 as=a", "conv 8 3 pad=1", "add a", "conv 8 1", "add a", "globalpool",
                           "linear 16 as=b", "linear 16", "add b", "linear outputs"})}) {
      ProgramFixture separate(backend.device(), backend.inner, model, 5, {12, 10, 3}, level);
      ProgramFixture accumulated(backend.device(), backend, model, 5, {12, 10, 3}, level);
      for (const bool first : {true, false}) {
        EXPECT_EQ(accumulated.run(first), separate.run(first));
        EXPECT_EQ(accumulated.gradient, separate.gradient);
      }
    }
}

struct WithSeparatePasses : ForwardingBackend {
  using ForwardingBackend::ForwardingBackend;
  std::string why_not_fused(const Spec& spec) override {
    return std::holds_alternative<LayerNormSpec>(spec) ? "to compare" : inner.why_not_fused(spec);
  }
};

// Along the blocks of a transformer, everything adds to one gradient in float32 with the bits of separate passes.
TEST(AccumulateGradients, NormsAddToTheGradientOfTheirBlocks) {
  const CpuContext cpu;
  Backend& backend = *cpu.compute.backend;
  const ModelSpec model =
      text({"conv 8 3 pad=1", "repeat 3 {", "residual {", "layernorm", "conv 8 1", "}", "residual {", "rmsnorm",
            "linear 8 axis=last", "gelu", "linear 8 axis=last", "}", "}", "globalpool", "linear outputs"});
  WithSeparatePasses refusing(backend);
  EXPECT_EQ(counts(compiled(refusing, model, 1)), (Counts{0, 6}));
  EXPECT_EQ(counts(compiled(backend, model, 1)), (Counts{6, 0}));
  ProgramFixture separate(backend.device(), refusing, model, 5, {12, 10, 3}, 1);
  ProgramFixture accumulated(backend.device(), backend, model, 5, {12, 10, 3}, 1);
  for (const bool first : {true, false}) {
    EXPECT_EQ(accumulated.run(first), separate.run(first));
    EXPECT_EQ(accumulated.gradient, separate.gradient);
  }
}

// Random networks of convolutions and sums. apart: the sources of each sum are copied first, so that no gradient of
// another operation shares memory with that of a sum.
std::vector<std::string> random_sums(std::uint32_t seed, bool apart) {
  std::vector<std::string> lines{"conv 8 3 pad=1 as=v0"};
  std::vector<int> readers{0};
  const auto next = [&](std::size_t below) { return ((seed = seed * 1664525 + 1013904223) >> 16) % below; };
  const auto sum = [&](std::size_t a, std::size_t b) {
    const std::size_t n = readers.size();
    ++readers[a];
    ++readers[b];
    readers.push_back(0);
    if (!apart) return lines.push_back(fmt::format("add v{} from=v{} as=v{}", b, a, n));
    lines.push_back(fmt::format("slice 0 8 from=v{} as=a{}", a, n));
    lines.push_back(fmt::format("slice 0 8 from=v{} as=b{}", b, n));
    lines.push_back(fmt::format("add b{0} from=a{0} as=v{0}", n));
  };
  for (int i = 0; i < 12; ++i) {
    const std::size_t a = next(readers.size()), b = next(readers.size());
    if (next(2) == 0 && a != b) {
      sum(a, b);
    } else {
      ++readers[a];
      lines.push_back(fmt::format("conv 8 1 from=v{} as=v{}", a, readers.size()));
      readers.push_back(0);
    }
  }
  std::size_t last = readers.size() - 1;
  for (std::size_t v = 0; v < last; ++v)
    if (readers[v] == 0) {
      sum(last, v);
      last = readers.size() - 1;
    }
  lines.insert(lines.end(), {"globalpool", "linear outputs"});
  return lines;
}

TEST(AccumulateGradients, SumsThatShareTheirGradientGiveTheSameBits) {
  const CpuContext cpu;
  Accumulating adding(*cpu.compute.backend);
  int shared = 0, copied = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    Backend& backend = seed % 2 ? adding : adding.inner;
    const int level = seed % 2;  // layers add to gradients from level 1 on
    ProgramFixture together(backend.device(), backend, text(random_sums(seed, false)), 3, {5, 4, 3}, level);
    ProgramFixture apart(backend.device(), backend, text(random_sums(seed, true)), 3, {5, 4, 3}, level);
    ASSERT_EQ(together.run(), apart.run());
    ASSERT_EQ(together.gradient_by_parameter(), apart.gradient_by_parameter())
        << fmt::format("{}", fmt::join(random_sums(seed, false), "\n"));
    const auto stores = gradient_stores(together.program->graph());
    shared += count_stores(stores, GradientStore::shared);
    for (std::size_t i = 0; i < stores.size(); ++i)
      if (std::holds_alternative<AddSpec>(together.program->graph().nodes[i].spec))
        copied += int(std::ranges::count(stores[i], GradientStore::write));
  }
  EXPECT_GT(shared, 300);
  EXPECT_GT(copied, 20);
}

// Along a residual network one tensor is the gradient of all blocks: an addition has nothing to do.
TEST(AccumulateGradients, ResidualBlocksShareOneGradient) {
  const CpuContext cpu;
  Backend& backend = *cpu.compute.backend;
  const ModelSpec chain = text({"conv 8 3 pad=1 as=a", "relu", "conv 8 3 pad=1", "add a as=b", "relu", "conv 8 3 pad=1",
                                "add b as=c", "relu", "conv 8 3 pad=1", "add c", "globalpool", "linear outputs"});
  const CompiledGraph graph = compiled(backend, chain, 0);
  EXPECT_EQ(count_stores(graph.gradient_stores, GradientStore::shared), 6);
  int gradients = 0;
  for (const Region& region : graph.plan.regions) gradients += region.name.ends_with(".diff");
  EXPECT_EQ(gradients, 1 + 3 + 2);  // of the blocks; of the convolutions' sources; of globalpool and the last layer
}

TEST(AccumulateGradients, SavesThePassesInTheCostAndTheirScratchMemory) {
  const CpuContext cpu;
  Accumulating backend(*cpu.compute.backend);
  const CompiledGraph separate = compiled(backend.inner, resnet(8), 1), accumulated = compiled(backend, resnet(8), 1);
  double sources = 0;
  for (const Node& node : accumulated.graph.nodes)
    if (const auto* conv = std::get_if<ConvSpec>(&node.spec); conv && conv->accumulates_diff_src)
      sources += double(conv->src.count() * 4);
  ASSERT_GT(sources, 0);
  EXPECT_DOUBLE_EQ(separate.cost().bytes - accumulated.cost().bytes, (3 - 1) * sources);
  EXPECT_LE(accumulated.plan.arena_bytes, separate.plan.arena_bytes);
}

TEST(AccumulateGradients, RefusalsLeaveAPassAndANote) {
  const CpuContext cpu;
  Accumulating backend(*cpu.compute.backend);
  backend.refused_channels = 8;  // the input of one block
  const CompiledGraph some = compiled(backend, resnet(8), 1);
  EXPECT_EQ(counts(some), (Counts{2, 1}));
  EXPECT_EQ(some.notes, std::vector<std::string>{
                            "1 gradients of tensors with several readers are added by passes of their own (too many "
                            "channels)"});
  const CompiledGraph none = compiled(backend.inner, resnet(8), 1);
  EXPECT_EQ(counts(none), (Counts{0, 3}));
  ASSERT_EQ(none.notes.size(), 1u);
}

// Backward, `add` comes first and writes. A relu cannot add, and a value that one node reads twice needs a pass too.
TEST(AccumulateGradients, OtherReadersNeedAPass) {
  const CpuContext cpu;
  Accumulating backend(*cpu.compute.backend);
  EXPECT_EQ(
      counts(compiled(backend, text({"conv 8 3 pad=1 as=a", "relu", "add a", "globalpool", "linear outputs"}), 1)),
      (Counts{0, 1}));
  EXPECT_EQ(counts(compiled(backend, text({"conv 8 3 pad=1 as=a", "add a", "globalpool", "linear outputs"}), 1)),
            (Counts{0, 1}));
  // Three readers: the last one writes, and each other one adds in its own way.
  EXPECT_EQ(
      counts(compiled(
          backend, text({"conv 8 3 pad=1 as=a", "relu", "add a", "conv 8 1", "add a", "globalpool", "linear outputs"}),
          1)),
      (Counts{0, 2}));
}

}  // namespace accumulate_gradients_test
}  // namespace millrace
