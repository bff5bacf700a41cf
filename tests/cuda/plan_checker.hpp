// Makes plans in the linked cuDNN for all convolutions of a network, for the description of a GPU.
#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>
#include <set>

#include "cpu/backend.hpp"
#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/model/program.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/roofline/cuda_fusion.hpp"

namespace millrace::test {

using namespace cuda;

inline std::string h200() { return read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"); }

inline std::string with(std::string json, const std::string& name, const std::string& value) {
  return std::regex_replace(json, std::regex("(\"" + name + "\": )(\"[^\"]*\"|[0-9]+)"), "$01" + value);
}
inline std::string a100() {
  return with(with(with(h200(), "deviceVer", "800"), "multiProcessorCount", "108"), "deviceName", "\"NVIDIA A100\"");
}

struct Network {
  ModelSpec model;
  Shape sample;
};

inline ModelSpec resnet(std::int64_t depth, std::int64_t classes) {
  ModelSpec m;
  m.name = "resnet";
  m.depth = depth;
  m.outputs = classes;
  return m;
}

// Every kind of convolution that a network in text form can contain.
inline std::vector<Network> text_networks() {
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

inline std::vector<Network> zoo() {
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
  int max_fusion_level() const override { return 2; }
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
  int norms = 0, sums = 0, diff_sums = 0;
};

inline Fused fused(const Graph& graph) {
  Fused f;
  for (const Node& node : graph.nodes) {
    if (const auto* conv = std::get_if<ConvSpec>(&node.spec)) {
      f.sums += conv->produces_sums;
      f.diff_sums += conv->produces_diff_sums;
    }
    f.norms += std::holds_alternative<BatchNormSpec>(node.spec);
  }
  return f;
}

// The model of the backend (millrace plan --gpu) fuses the same convolutions as the backend itself.
inline void expect_as_predicted(const Graph& compiled, Graph plain, int level, const std::string& what) {
  roofline::CudaFusionRules rules;
  std::vector<std::string> unfused;
  const Graph predicted = rewrite(std::move(plain), rules, level, unfused);
  ASSERT_EQ(compiled.nodes.size(), predicted.nodes.size()) << what;
  for (std::size_t i = 0; i < compiled.nodes.size(); ++i) {
    const auto* conv = std::get_if<ConvSpec>(&compiled.nodes[i].spec);
    if (!conv) continue;
    const auto& other = std::get<ConvSpec>(predicted.nodes[i].spec);
    const std::string& name = compiled.nodes[i].name;
    if (conv->padded_channels > 0) {  // otherwise cuDNN pads the images itself
      EXPECT_EQ(conv->padded_channels, other.padded_channels) << what << " " << name;
    }
    EXPECT_EQ(conv->produces_sums, other.produces_sums) << what << " " << name;
    EXPECT_EQ(conv->produces_diff_sums, other.produces_diff_sums) << what << " " << name;
  }
}

inline void expect_to_fail_at_load(const cudnn::ConvGraph::RuntimeCompiledEngines& engines) {
  if (engines.proposed > engines.finished) {
    EXPECT_NE(engines.why_not.find("cuLibraryLoadData"), std::string::npos) << engines.why_not;
  }
}

class Checker {
 public:
  Checker(const std::string& device, const cudnn::Options& options)
      : target_(cudnn::DeviceTarget::described_by(device)),
        backend_(device, options),
        library_(backend_.library),
        predicted_(device == h200()) {}

  // Checks that every convolution of the network has plans, without which the graph cannot be compiled.
  Fused check(const Network& n, std::int64_t rows, DType dtype, Mode mode, int level = 0) {
    const std::string what = fmt::format("{} {} {} level {}", n.model.name, n.model.depth, name_of(dtype), level);
    try {
      const Graph graph = build_model(n.model, {rows, n.sample, DType::u8, {}, true}, dtype, mode);
      const CompiledGraph compiled = compile_graph(backend_, graph, level);
      if (predicted_) expect_as_predicted(compiled.graph, graph, level, what);
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
    // Graphs with a plan have a precompiled engine. The others have runtime-compiled engines at most. Without a GPU
    // these fail, but only when the module is loaded.
    EXPECT_EQ(library_.without_precompiled_engine().size(), without);
    for (const auto& [key, engines] : library_.without_precompiled_engine()) {
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
  bool predicted_;  // the model describes Hopper
  std::set<std::string> notes_;
  std::size_t ops_ = 0, workspace_ = 0;
};

}  // namespace millrace::test
