// Every convolution of the built-in models that is not depthwise has plans in the linked cuDNN, for the descriptions of
// several GPUs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>
#include <set>

#include "cpu/backend.hpp"
#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/conv_graph.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/model/program.hpp"
#include "millrace/model/zoo.hpp"

namespace millrace {
namespace plans_test {

using namespace cuda;

std::string h200() { return read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"); }

std::string with(std::string json, const std::string& name, const std::string& value) {
  return std::regex_replace(json, std::regex("(\"" + name + "\": )(\"[^\"]*\"|[0-9]+)"), "$01" + value);
}
std::string a100() {
  return with(with(with(h200(), "deviceVer", "800"), "multiProcessorCount", "108"), "deviceName", "\"NVIDIA A100\"");
}

struct Network {
  ModelSpec model;
  Shape sample;
};

ModelSpec resnet(std::int64_t depth, std::int64_t classes) {
  ModelSpec m;
  m.name = "resnet";
  m.depth = depth;
  m.outputs = classes;
  return m;
}

// Every kind of convolution that a network in text form can contain.
std::vector<Network> text_networks() {
  ModelSpec flat, line, volume;
  flat.name = line.name = volume.name = "layers";
  flat.layers = {"conv 24 5 pad=same bias=on",
                 "relu",
                 "conv 24 3 groups=24 pad=1",
                 "conv 40 1 stride=2",
                 "conv 40 3 dilation=2 groups=4 bias=on",
                 "globalpool",
                 "linear outputs"};
  line.layers = {"conv 16 9 stride=2 bias=on", "relu", "conv 33 5 dilation=3", "globalpool", "linear outputs"};
  volume.layers = {"conv 16 3 pad=1 bias=on", "relu", "conv 32 2x3x3 stride=2", "globalpool", "linear outputs"};
  return {{flat, {32, 32, 1}}, {line, {597, 3}}, {volume, {12, 12, 12, 2}}};
}

std::vector<Network> zoo() {
  std::vector<Network> all{{ModelSpec{}, {28, 28, 1}},
                           {resnet(8, 10), {28, 28, 1}},
                           {resnet(20, 10), {32, 32, 3}},
                           {resnet(18, 1000), {224, 224, 3}},
                           {resnet(50, 1000), {224, 224, 3}}};
  for (auto& network : text_networks()) all.push_back(std::move(network));
  return all;
}

// Makes the convolutions of the CUDA backend for the description of a GPU. Other operations do nothing.
class DescribedBackend : public Backend {
 public:
  DescribedBackend(const std::string& device, const cudnn::Options& options) : library(device, options) {}
  Device& device() override { return *device_; }
  std::unique_ptr<Op> make(const Spec& spec) override {
    if (const auto* conv = std::get_if<ConvSpec>(&spec)) return make_conv(*conv, LaunchContext{nullptr, 132}, library);
    return std::make_unique<Nothing>();
  }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&) override { return nullptr; }
  void convert(void*, DType, const void*, DType, std::int64_t) override {}
  int max_fusion_level() const override { return 3; }
  std::int64_t padded_channels(const ConvSpec& spec) override { return cuda::padded_channels(spec, library); }
  std::string why_not_fused(const Spec& spec) override {
    const auto* conv = std::get_if<ConvSpec>(&spec);
    return conv ? cuda::why_not_fused(*conv, library) : "only convolutions are supported here";
  }
  std::string precision_note(DType) const override { return ""; }
  cudnn::Cudnn library;

 private:
  std::unique_ptr<Device> device_ = make_cpu_device();
  struct Nothing : Op {
    MemoryRequirements memory_requirements() const override { return {}; }
    void forward(const OpArgs&) override {}
    void backward(const OpArgs&) override {}
    std::string implementation() const override { return ""; }
  };
};

struct Fused {
  int norms = 0, sums = 0, diff_sums = 0, normalised = 0;
  int accumulated = 0, passes = 0;  // gradients of tensors with several readers
};

Fused fused(const Graph& graph) {
  Fused f;
  f.accumulated = count_stores(gradient_stores(graph), GradientStore::accumulate);
  f.passes = count_stores(gradient_stores(graph), GradientStore::add_pass);
  for (const Node& node : graph.nodes) {
    if (const auto* conv = std::get_if<ConvSpec>(&node.spec)) {
      f.sums += conv->produces_sums;
      f.diff_sums += conv->produces_diff_sums;
      f.normalised += conv->normalises_src;
    }
    f.norms += std::holds_alternative<BatchNormSpec>(node.spec);
  }
  return f;
}

void expect_to_fail_at_load(const cudnn::Graph::RuntimeCompiledEngines& engines) {
  if (engines.proposed > engines.finished) {
    EXPECT_NE(engines.why_not.find("cuLibraryLoadData"), std::string::npos) << engines.why_not;
  }
}

class Checker {
 public:
  Checker(const std::string& device, const cudnn::Options& options)
      : target_(cudnn::DeviceTarget::described_by(device)), backend_(device, options), library_(backend_.library) {}

  // Checks that every convolution of the network has plans, without which the graph cannot be compiled.
  Fused check(const Network& n, std::int64_t rows, DType dtype, Mode mode, int level = 0) {
    const std::string what = fmt::format("{} {} {} level {}", n.model.name, n.model.depth, name_of(dtype), level);
    try {
      const CompiledGraph compiled =
          compile_graph(backend_, build_model(n.model, {rows, n.sample, DType::u8, {}, true}, dtype, mode), level);
      for (std::size_t i = 0; i < compiled.ops.size(); ++i) {
        if (!std::holds_alternative<ConvSpec>(compiled.graph.nodes[i].spec)) continue;
        ++ops_;
        workspace_ = std::max(workspace_, compiled.ops[i]->memory_requirements().workspace);
      }
      for (const std::string& note : compiled.notes) notes_.insert(note.substr(note.find('(')));
      return fused(compiled.graph);
    } catch (const Error& e) {
      ADD_FAILURE() << what << ": " << e.what();
      return {};
    }
  }

  // Checks that the plans chosen so far, one for each graph, can be loaded again with the same text, and that their
  // workspace is within the limit.
  void expect_round_trips(bool print) {
    std::size_t without = 0;
    for (const auto& [key, entry] : library_.choices().cache().entries()) {
      if (entry.plan.empty()) {
        ++without;
        continue;
      }
      const auto plan = cudnn::Plan::from_json(target_, entry.plan);
      ASSERT_TRUE(plan.has_value()) << key << ": " << cudnn::last_error();
      EXPECT_EQ(plan->json(), entry.plan) << key;
      EXPECT_LE(plan->workspace_bytes(), library_.options().rules.workspace_limit) << key;
      if (print)
        std::printf("%8.1f MB  %-6s %s\n", double(plan->workspace_bytes()) / (1 << 20), plan->engine().c_str(),
                    key.c_str());
    }
    std::printf(
        "%zu ops, %zu graphs (%zu have no precompiled engine and use another candidate), largest workspace of an op "
        "%.1f "
        "MB\n",
        ops_, library_.choices().cache().entries().size(), without, double(workspace_) / (1 << 20));
    // The graphs without a plan have runtime-compiled engines at most. Without a GPU these fail, but only when the
    // module is loaded.
    EXPECT_EQ(library_.without_plan().size(), without);
    for (const auto& [key, engines] : library_.without_plan()) {
      std::printf("without %s: %d runtime-compiled engines %s\n", key.c_str(), engines.proposed,
                  engines.why_not.c_str());
      expect_to_fail_at_load(engines);
    }
    for (const std::string& note : notes_) std::printf("not fused %s\n", note.c_str());
    EXPECT_GT(ops_, 0u);
  }

 private:
  cudnn::DeviceTarget target_;
  DescribedBackend backend_;
  cudnn::Cudnn& library_;
  std::set<std::string> notes_;
  std::size_t ops_ = 0, workspace_ = 0;
};

TEST(ConvPlans, ResNet50InHalfPrecisionHasPlansOnH200) {
  Checker checker(h200(), {});
  checker.check({resnet(50, 1000), {224, 224, 3}}, 64, DType::f16, Mode::train);
  checker.expect_round_trips(true);
}

TEST(ConvPlans, EveryKindOfConvolutionHasPlansOnA100) {
  Checker checker(a100(), {});
  for (const Network& n : text_networks())
    for (const DType dtype : {DType::f32, DType::bf16}) checker.check(n, 6, dtype, Mode::train);
  checker.expect_round_trips(true);
}

// The gradients of the 16 blocks of ResNet-50 are summed by 1x1 convolutions, those of ResNet-18 by 3x3 convolutions of
// stride 1 and 2, both with beta = 1.
TEST(ConvPlans, ConvolutionsAddToTheGradientsOfBlocks) {
  Checker checker(h200(), {});
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    for (const auto& [depth, blocks] : {std::pair{50, 16}, {18, 8}}) {
      const Network network{resnet(depth, 1000), {224, 224, 3}};
      const Fused separate = checker.check(network, 64, dtype, Mode::train, 0),
                  fused = checker.check(network, 64, dtype, Mode::train, 1);
      EXPECT_EQ(separate.passes, blocks) << depth;
      EXPECT_EQ(separate.accumulated, 0) << depth;
      EXPECT_EQ(fused.passes, 0) << depth << " " << name_of(dtype);
      EXPECT_EQ(fused.accumulated, blocks) << depth << " " << name_of(dtype);
    }
  checker.expect_round_trips(false);
}

// All norms except the one of the stem, whose image has 3 channels, get their sums from a convolution. In backward, the
// inner norms of a block do, because exactly one convolution follows each of them. At level 3 it also applies them.
void expect_fused(Checker& checker, const Network& n, std::int64_t rows, int inner) {
  for (const int level : {2, 3}) {
    const Fused f = checker.check(n, rows, DType::f16, Mode::train, level);
    EXPECT_EQ(f.sums, f.norms - 1) << n.model.depth;
    EXPECT_EQ(f.passes, 0) << n.model.depth;
    EXPECT_EQ(f.diff_sums, inner) << n.model.depth;
    EXPECT_EQ(f.normalised, level == 3 ? inner : 0) << n.model.depth;
  }
}

TEST(FusedPlans, ResNet50FusesInHalfPrecisionOnH200AndA100) {
  for (const std::string& device : {h200(), a100()}) {
    Checker checker(device, {});
    expect_fused(checker, {resnet(50, 1000), {224, 224, 3}}, 256, 32);
    checker.expect_round_trips(false);
  }
}

TEST(FusedPlans, Bfloat16StopsAtLevelOne) {
  Checker checker(h200(), {});
  const Fused f = checker.check({resnet(8, 10), {28, 28, 1}}, 64, DType::bf16, Mode::train, 3);
  EXPECT_EQ(f.norms, 9);
  EXPECT_EQ(f.sums + f.diff_sums + f.normalised, 0);
  checker.expect_round_trips(false);
}

TEST(FusedPlansLong, ResNetsFuseAtAnyBatchOnH200AndA100) {
  for (const std::string& device : {h200(), a100()}) {
    Checker checker(device, {});
    for (const std::int64_t rows : {1, 13, 128})
      for (const auto& [depth, inner] : {std::pair(18, 8), std::pair(50, 32)})
        expect_fused(checker, {resnet(depth, 1000), {224, 224, 3}}, rows, inner);
    checker.expect_round_trips(true);
  }
}

// cuDNN proposes runtime-compiled engines only if it finds libcuda.so.1. The toolkit's stub is enough, and the test is
// started with it.
TEST(RunTimePlansLong, FailOnlyWhenTheModuleIsLoaded) {
  const auto target = cudnn::DeviceTarget::described_by(h200());
  cudnn::ConvProblem p;
  p.dtype = DType::f16;
  p.bias = true;
  p.src = p.dst = {64, 56, 56, 64};
  p.weight = {64, 3, 3, 64};
  p.window = {.kernel = {3, 3}, .pad = {1, 1}};
  const auto engines = cudnn::ConvGraph(target, p).runtime_compiled({});
  if (engines.proposed == 0) GTEST_SKIP() << "no libcuda.so.1 here, not even the stub of the toolkit";
  std::printf("%d proposed, %d finished, %s\n", engines.proposed, engines.finished, engines.why_not.c_str());
  expect_to_fail_at_load(engines);
}

// With every rule for training on an H200; inference, single samples in it, and A100 with the usual rules.
TEST(ConvPlansLong, TheWholeZooHasPlansOnH200AndA100) {
  for (const auto& [deterministic, tf32] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    const bool usual = !deterministic && !tf32;
    for (const std::string& device : usual ? std::vector{h200(), a100()} : std::vector{h200()}) {
      Checker checker(device, {.rules = {.deterministic = deterministic, .tf32 = tf32}});
      for (const Network& n : zoo())
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          if (tf32 && dtype != DType::f32) continue;
          checker.check(n, 64, dtype, Mode::train);  // level 1 has the same convolutions
          if (usual || dtype == DType::f16) checker.check(n, 64, dtype, Mode::train, 3);
          if (usual)
            for (const std::int64_t rows : {64, 1}) checker.check(n, rows, dtype, Mode::infer);
        }
      for (const int depth : {34, 101})
        if (!tf32) checker.check({resnet(depth, 1000), {224, 224, 3}}, 64, DType::f16, Mode::train, 3);
      checker.expect_round_trips(!deterministic);
    }
  }
}

}  // namespace plans_test
}  // namespace millrace
