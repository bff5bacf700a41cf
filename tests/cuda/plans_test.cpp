// Every convolution of the built-in models has plans in the linked cuDNN, for the descriptions of several GPUs.
#include "cuda/plan_checker.hpp"

namespace millrace {
namespace {

using namespace test;

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

// All norms except the one of the stem, whose image has 3 channels, get their sums from a convolution. In backward, the
// inner norms of a block do, because exactly one convolution follows each of them.
void expect_fused(Checker& checker, const Network& n, std::int64_t rows, int inner) {
  const Fused f = checker.check(n, rows, DType::f16, Mode::train, 2);
  EXPECT_EQ(f.sums, f.norms - 1) << n.model.depth;
  EXPECT_EQ(f.diff_sums, inner) << n.model.depth;
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
  const Fused f = checker.check({resnet(8, 10), {28, 28, 1}}, 64, DType::bf16, Mode::train, 2);
  EXPECT_EQ(f.norms, 9);
  EXPECT_EQ(f.sums + f.diff_sums, 0);
  checker.expect_round_trips(false);
}

// Grouped and dilated convolutions, a bias, channels that are no multiple of 4 or 8, lines and volumes.
TEST(FusedPlans, OtherNetworksFuseAsPredicted) {
  Checker checker(h200(), {});
  const auto fuse = [&](std::vector<std::string> layers, const Shape& sample) {
    ModelSpec model;
    model.name = "layers";
    model.layers = std::move(layers);
    model.layers.insert(model.layers.end(), {"globalpool", "linear outputs"});
    for (const DType dtype : {DType::f16, DType::f32}) checker.check({model, sample}, 16, dtype, Mode::train, 2);
  };
  const std::string norm = "batchnorm", relu = "relu";
  fuse({"conv 24 5 pad=same bias=on", norm, relu, "conv 24 3 groups=3 pad=1", norm, relu, "conv 40 1 stride=2", norm,
        relu, "conv 40 3 dilation=2", norm},
       {32, 32, 1});
  fuse({"conv 12 3 pad=1", norm, relu, "conv 30 3 pad=1", norm, relu, "conv 32 3", norm, relu, "conv 32 3", norm},
       {16, 16, 3});
  fuse({"conv 16 9", norm, relu, "conv 32 5 dilation=3", norm, relu, "conv 32 1", norm}, {597, 3});
  fuse({"conv 16 3 pad=1", norm, relu, "conv 32 2x3x3 stride=2", norm, relu, "conv 32 3 pad=1", norm}, {12, 12, 12, 2});
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
  p.src = {64, 56, 56, 64};
  p.weight = {64, 3, 3, 64};
  p.dst = {64, 56, 56, 64};
  p.window.kernel = {3, 3};
  p.window.pad = {1, 1};
  const auto engines = cudnn::ConvGraph(target, p).runtime_compiled({});
  if (engines.proposed == 0) GTEST_SKIP() << "no libcuda.so.1 here, not even the stub of the toolkit";
  std::printf("%d proposed, %d finished, %s\n", engines.proposed, engines.finished, engines.why_not.c_str());
  expect_to_fail_at_load(engines);
}

TEST(ConvPlansLong, TheWholeZooHasPlansOnH200AndA100) {
  for (const std::string& device : {h200(), a100()})
    for (const auto& [deterministic, tf32] :
         {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
      cudnn::Options options;
      options.rules.deterministic = deterministic;
      options.rules.tf32 = tf32;
      Checker checker(device, options);
      for (const Network& n : zoo())
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
          for (const Mode mode : {Mode::train, Mode::infer})
            for (const std::int64_t rows : {64, 1}) {
              if (tf32 && (dtype != DType::f32 || rows == 1)) continue;
              checker.check(n, rows, dtype, mode);  // level 1 has the same convolutions
              const bool others = !deterministic && !tf32 && rows == 64;
              if (mode == Mode::train && (dtype == DType::f16 || others)) checker.check(n, rows, dtype, mode, 2);
            }
      for (const int depth : {34, 101})
        if (!tf32) checker.check({resnet(depth, 1000), {224, 224, 3}}, 64, DType::f16, Mode::train, 2);
      checker.expect_round_trips(!deterministic);
    }
}

}  // namespace
}  // namespace millrace
