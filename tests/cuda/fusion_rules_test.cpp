// The model of the CUDA backend (millrace plan --gpu) fuses the same convolutions as cuDNN does for the description of
// an H200. Images with few channels are left out, except for those of ResNet-50: whether they are padded depends on
// sizes of workspaces.
#include <gtest/gtest.h>

#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/roofline/cuda_fusion.hpp"

namespace millrace {
namespace fusion_rules_test {

class CudnnRules : public FusionRules {
 public:
  int max_fusion_level() const override { return 3; }
  std::int64_t padded_channels(const ConvSpec& spec) override { return cuda::padded_channels(spec, library_); }
  bool merges_norm(const BatchNormSpec&) const override { return true; }
  std::string why_not_fused(const Spec& spec) override {
    const auto* conv = std::get_if<ConvSpec>(&spec);
    return conv ? cuda::why_not_fused(*conv, library_) : "only convolutions are compared";
  }

 private:
  cuda::cudnn::Cudnn library_{read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"), {}};
};

struct FusionRulesOfH200 : testing::Test {
  void expect_as_predicted(const ModelSpec& model, const Shape& sample, DType dtype, std::int64_t rows, bool stem) {
    const Graph graph = build_model(model, {rows, sample, DType::u8, {}, true}, dtype, Mode::train);
    std::vector<std::string> unfused;
    const Graph real = rewrite(graph, cudnn, 3, unfused), predicted = rewrite(graph, model_of_cudnn, 3, unfused);
    ASSERT_EQ(real.nodes.size(), predicted.nodes.size());
    for (std::size_t i = 0; i < real.nodes.size(); ++i) {
      const auto* conv = std::get_if<ConvSpec>(&real.nodes[i].spec);
      if (!conv || (!conv->need_diff_src && !stem)) continue;
      const auto& other = std::get<ConvSpec>(predicted.nodes[i].spec);
      const std::string what = real.nodes[i].name + " of " + sample.str() + " in " + name_of(dtype);
      EXPECT_EQ(conv->padded_channels, other.padded_channels) << what;
      EXPECT_EQ(conv->produces_sums, other.produces_sums) << what;
      EXPECT_EQ(conv->produces_diff_sums, other.produces_diff_sums) << what;
      EXPECT_EQ(conv->normalises_src, other.normalises_src) << what;
      EXPECT_EQ(conv->accumulates_diff_src, other.accumulates_diff_src) << what;
    }
  }
  void expect_as_predicted(std::vector<std::string> layers, const Shape& sample) {
    ModelSpec model;
    model.name = "layers";
    model.layers = std::move(layers);
    model.layers.insert(model.layers.end(), {"globalpool", "linear outputs"});
    expect_as_predicted(model, sample, DType::f16, 16, sample[-1] % 8 == 0);
  }
  CudnnRules cudnn;
  roofline::CudaFusionRules model_of_cudnn;
};

TEST_F(FusionRulesOfH200, ResNet50) {
  ModelSpec model;
  model.name = "resnet";
  model.depth = 50;
  model.outputs = 1000;
  expect_as_predicted(model, {224, 224, 3}, DType::f16, 256, true);
  model.depth = 8;
  model.outputs = 10;
  for (const DType dtype : {DType::bf16, DType::f32}) expect_as_predicted(model, {32, 32, 8}, dtype, 64, true);
}

TEST_F(FusionRulesOfH200, GroupsDilationBiasAndNarrowLayers) {
  const std::string norm = "batchnorm", relu = "relu";
  expect_as_predicted({"conv 24 5 pad=same", norm, relu, "conv 24 3 groups=3 pad=1", norm, relu, "conv 40 1 stride=2",
                       norm, relu, "conv 40 3 dilation=2", norm},
                      {32, 32, 1});
  expect_as_predicted({"conv 16 3 pad=1", norm, relu, "conv 32 3 bias=on", norm, relu, "conv 32 3", norm}, {32, 32, 8});
  expect_as_predicted(
      {"conv 12 3 pad=1", norm, relu, "conv 30 3 pad=1", norm, relu, "conv 32 3", norm, relu, "conv 32 3", norm},
      {16, 16, 3});
}

TEST_F(FusionRulesOfH200, LargeKernelsLinesAndVolumes) {
  const std::string norm = "batchnorm", relu = "relu";
  expect_as_predicted(
      {"conv 16 7 stride=2", norm, relu, "conv 16 7", norm, relu, "conv 16 7 stride=2", norm, relu, "conv 16 5", norm},
      {96, 96, 8});
  expect_as_predicted({"conv 16 9", norm, relu, "conv 32 5 dilation=3", norm, relu, "conv 32 25 pad=same", norm, relu,
                       "conv 32 32", norm},
                      {597, 3});
  expect_as_predicted({"conv 16 3 pad=1", norm, relu, "conv 32 2x3x3 stride=2", norm, relu, "conv 32 3 pad=1", norm},
                      {12, 12, 12, 2});
}

}  // namespace fusion_rules_test
}  // namespace millrace
