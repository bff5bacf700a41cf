// Every convolution of the zoo has plans in the linked cuDNN, on GPUs that are only described.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <regex>

#include "../../src/cuda/conv.hpp"
#include "../../src/cuda/cudnn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/model/program.hpp"
#include "millrace/model/zoo.hpp"

namespace millrace {
namespace {

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
  m.name = "resnet", m.depth = depth, m.outputs = classes;
  return m;
}

// Every kind of convolution that a network as text can name.
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

class Checker {
 public:
  Checker(const std::string& device, const cudnn::Options& options)
      : target_(cudnn::Target::described_by(device)), library_(device, options) {}

  void check(const Network& n, std::int64_t rows, DType dtype, Mode mode) {
    const Graph graph = build_model(n.model, {rows, n.sample, DType::u8, {}, true}, dtype, mode);
    for (const Node& node : graph.nodes) {
      const auto* spec = std::get_if<ConvSpec>(&node.spec);
      if (!spec) continue;
      try {
        const auto op = make_conv(*spec, Context{nullptr, 132}, library_);
        ++ops_;
        workspace_ = std::max(workspace_, op->needs().workspace);
      } catch (const Error& e) {
        ADD_FAILURE() << n.model.name << " " << node.name << ": " << e.what();
      }
    }
  }

  // What was chosen along the way, once a graph: it loads again, with the same text and the same needs.
  void expect_round_trips(bool print) {
    std::size_t without = 0;
    for (const auto& [key, entry] : library_.cache().entries()) {
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
        "%zu ops, %zu graphs (%zu have no engine, and another way is taken), largest workspace of an op %.1f MB\n",
        ops_, library_.cache().entries().size(), without, double(workspace_) / (1 << 20));
    EXPECT_GT(ops_, 0u);
  }

 private:
  cudnn::Target target_;
  cudnn::Cudnn library_;
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

TEST(ConvPlansLong, TheWholeZooHasPlansOnH200AndA100) {
  for (const std::string& device : {h200(), a100()})
    for (const bool deterministic : {false, true}) {
      cudnn::Options options;
      options.rules.deterministic = deterministic;
      Checker checker(device, options);
      for (const Network& n : zoo())
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
          for (const Mode mode : {Mode::train, Mode::infer})
            for (const std::int64_t rows : {64, 1}) checker.check(n, rows, dtype, mode);
      checker.expect_round_trips(!deterministic);
    }
}

}  // namespace
}  // namespace millrace
