// Samples that need no conversion: the first layers read them where the loader put them.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace input_in_place_test {

using namespace test;

// Always runs the input pass.
struct CopyingBackend : ForwardingBackend {
  struct Copy : Op {
    std::unique_ptr<Op> op;
    explicit Copy(std::unique_ptr<Op> o) : op(std::move(o)) {}
    MemoryRequirements memory_requirements() const override { return op->memory_requirements(); }
    std::string implementation() const override { return op->implementation(); }
    void forward(const OpArgs& args) override { op->forward(args); }
    void backward(const OpArgs& args) override { op->backward(args); }
  };
  using ForwardingBackend::ForwardingBackend;
  std::unique_ptr<Op> make(const Spec& spec) override {
    auto op = ForwardingBackend::make(spec);
    return std::holds_alternative<InputSpec>(spec) ? std::make_unique<Copy>(std::move(op)) : std::move(op);
  }
};

const ModelSpec linear = written_network({"linear 16", "relu", "linear outputs"});
const ModelBatch vectors{6, {12}, DType::f32, {}, true}, images{6, {8, 9, 16}, DType::f32, {}, true};

void fill(ProgramFixture& fixture) {
  auto* x = reinterpret_cast<float*>(fixture.x.data());
  for (std::size_t i = 0; i < fixture.x.size() / sizeof(float); ++i) x[i] = float(int(i * i % 251) - 125) / 64;
}

const Value& input_of(const Graph& graph) { return graph.values[std::size_t(graph.nodes.front().dst)]; }
bool has_region(const Program& program, const std::string& name) {
  return std::ranges::any_of(program.plan().regions, [&](const Region& region) { return region.name == name; });
}

// Readers of all kinds: a linear layer, a convolution, a norm with a convolution behind it, whose values they share at
// levels 2 and 3, a change of the extents, several readers.
TEST(InputInPlace, HasTheBitsOfTheCopy) {
  CpuContext context;
  CopyingBackend copying(*context.compute.backend);
  const std::pair<ModelSpec, const ModelBatch&> networks[] = {
      {linear, vectors},
      {written_network({"conv 16 3 pad=same", "relu", "globalpool", "linear outputs"}), images},
      {written_network({"batchnorm", "relu", "conv 16 3 pad=same", "globalpool", "linear outputs"}), images},
      {written_network({"reshape 1152", "linear outputs"}), images},
      {written_network({"conv 16 1", "relu", "add input", "globalpool", "linear outputs"}), images}};
  for (const auto& [spec, batch] : networks)
    for (const int level : {0, 1, 2, 3}) {
      const std::string what = spec.layers.front() + " at level " + std::to_string(level);
      ProgramFixture there(*context.compute.device, *context.compute.backend, spec, batch, level),
          copy(*context.compute.device, copying, spec, batch, level);
      EXPECT_TRUE(copy.program->has_input_pass()) << what;
      for (ProgramFixture* fixture : {&there, &copy}) fill(*fixture);
      for (const bool first : {true, false}) {
        EXPECT_EQ(there.run(first), copy.run(first)) << what;
        EXPECT_EQ(there.gradient, copy.gradient) << what;
        EXPECT_EQ(there.stats, copy.stats) << what;
        // The next micro-batch is in another slot, and the last one is overwritten.
        std::vector<std::uint8_t> next = there.x;
        there.x.swap(next);
        std::ranges::fill(next, std::uint8_t(0xff));
      }
    }
}

TEST(InputInPlace, TakesNoMemoryAndNoTime) {
  CpuContext context;
  CopyingBackend copying(*context.compute.backend);
  ProgramFixture there(*context.compute.device, *context.compute.backend, linear, vectors, 1),
      copy(*context.compute.device, copying, linear, vectors, 1);
  const Value& input = input_of(there.program->graph());
  EXPECT_FALSE(there.program->has_input_pass());
  EXPECT_FALSE(has_region(*there.program, input.name));
  EXPECT_TRUE(has_region(*copy.program, input.name));
  EXPECT_LT(there.program->plan().arena_bytes, copy.program->plan().arena_bytes);
  EXPECT_EQ(there.program->forward_cost(0).bytes, 0);
  EXPECT_GT(copy.program->forward_cost(0).bytes, 0);
  there.program->run_node(0, false);  // by itself it does nothing
}

TEST(InputInPlace, SamplesThatNeedConversionAreConverted) {
  CpuContext context;
  const auto converts = [&](auto change, DType dtype = DType::f32, DType raw = DType::f32) {
    ModelSpec spec = written_network({"globalpool", "linear outputs"});
    change(spec.input);
    ModelBatch batch = images;
    batch.x_dtype = raw;
    return ProgramFixture(*context.compute.device, *context.compute.backend, spec, batch, 1, dtype)
        .program->has_input_pass();
  };
  const auto nothing = [](InputSpec&) {};
  EXPECT_FALSE(converts(nothing));
  EXPECT_TRUE(converts(nothing, DType::bf16));
  EXPECT_TRUE(converts(nothing, DType::f32, DType::u8));
  EXPECT_TRUE(converts(nothing, DType::f32, DType::i32));
  EXPECT_TRUE(converts([](InputSpec& s) { s.scale = 0.5f; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.offset = 1; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.mean = std::vector<float>(16, 1.0f), s.std = std::vector<float>(16, 1); }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.flip = true; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.crop_pad = 1; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.cutout = 2; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.channels_first = true; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.subvolume = {4, 4}; }));
  EXPECT_TRUE(converts([](InputSpec& s) { s.channels = {0, 2}; }));
  EXPECT_TRUE(converts([](InputSpec& s) {
    s.channels.resize(16);
    std::iota(s.channels.rbegin(), s.channels.rend(), std::int64_t(0));
  })) << "another order";
}

// predict --features input
TEST(InputInPlace, IsCopiedIfItIsAnOutput) {
  CpuContext context;
  const auto keep = [](Graph& graph) { graph = keep_outputs(graph, {graph.nodes.front().dst}); };
  ProgramFixture alone(*context.compute.device, *context.compute.backend, linear, vectors, 1, {DType::f32, Mode::infer},
                       keep);
  fill(alone);
  alone.forward();
  const Tensor& result = alone.program->value(alone.program->graph().outputs.at(0));
  ASSERT_NE(result.data, nullptr);
  EXPECT_EQ(std::memcmp(result.data, alone.x.data(), alone.x.size()), 0);
}

}  // namespace input_in_place_test
}  // namespace millrace
