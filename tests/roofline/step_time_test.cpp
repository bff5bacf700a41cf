#include "millrace/roofline/step_time.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "roofline/networks.hpp"

namespace millrace::roofline {
namespace step_time_test {

// 1 GB/s and 1 GFLOP/s, all of it reached.
GpuModel plain_gpu() {
  return parse_gpu("gpu.txt",
                   "memory_bandwidth = 1GB/s\nfp16 = 1e9\nmemory_efficiency = 1\ntensor_efficiency = 1\n"
                   "link_efficiency = 1\nlaunch_gap = 1ms\nnvlink = 1MB/s\n");
}

TEST(StepTime, TheSlowerOfMemoryAndArithmeticPlusGapsIsTheTimeOfAPass) {
  GpuModel gpu = plain_gpu();
  const std::vector<Pass> passes = {{PassKind::pool, Phase::forward, "", 3e9, 1e9, DType::f16, 2},
                                    {PassKind::pool, Phase::backward, "", 1e9, 4e9, DType::f16, 1}};
  StepTime time = predict(passes, {}, gpu);
  EXPECT_DOUBLE_EQ(time.seconds(), 3 + 4 + 3e-3);
  EXPECT_DOUBLE_EQ(time.phase_seconds[1], 4 + 1e-3);
  const PassTotal& pool = time.of(PassKind::pool);
  EXPECT_DOUBLE_EQ(pool.memory_seconds, 3);
  EXPECT_DOUBLE_EQ(pool.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(pool.gap_seconds, 3e-3);
  EXPECT_DOUBLE_EQ(pool.ideal_seconds, 7);
  EXPECT_EQ(pool.launches, 3);
  gpu.memory_efficiency = gpu.tensor_efficiency = 0.5;
  time = predict(passes, {}, gpu);
  EXPECT_DOUBLE_EQ(time.seconds(), 6 + 8 + 3e-3);
  EXPECT_DOUBLE_EQ(time.passes.ideal_seconds, 7);  // by the data sheet
}

TEST(StepTime, Float32ProductsUseTensorCoresOnlyWithTf32) {
  const GpuModel& h100 = *find_gpu("h100");
  TrainingStep step;
  const std::vector<Pass> passes = {{PassKind::linear_forward, Phase::forward, "", 0, 67e12, DType::f32, 0}};
  EXPECT_DOUBLE_EQ(predict(passes, step, h100).passes.ideal_seconds, 1);
  step.tf32 = true;
  EXPECT_DOUBLE_EQ(predict(passes, step, h100).passes.ideal_seconds, 67.0 / 494);
}

TEST(StepTime, CollectivesThatDoNotFitBesideTheBackwardPassAreExposed) {
  const GpuModel gpu = plain_gpu();
  const std::vector<Pass> passes = {{PassKind::pool, Phase::forward, "", 2e9, 0, DType::f16, 0},
                                    {PassKind::pool, Phase::backward, "", 4e9, 0, DType::f16, 0}};
  TrainingStep step;
  Communication& c = step.communication;
  c.collectives = 1;
  c.reduce_bytes = 5e6;
  c.last_reduce_bytes = 0.5e6;
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).exposed_seconds, 1);  // 5 s beside 4 s
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).link_seconds, 5);
  c.reduce_bytes = 1e6;
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).exposed_seconds, 0.5);  // the last bucket comes after the backward pass
  c.overlap = false;
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).exposed_seconds, 1);
  c.gather_bytes = 3e6;
  c.first_gather_bytes = 0.25e6;
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).exposed_seconds, 1 + 1);  // 3 s beside the forward pass of 2 s
  c.update_bytes = 0.1e6;
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).exposed_seconds, 2.1);
  EXPECT_DOUBLE_EQ(predict(passes, step, gpu).seconds(), 6 + 2.1);
}

// The step repeats the micro-batch, but not the optimizer. Only later micro-batches add to the gradient.
TEST(StepTime, AStepHasAllItsMicroBatchesAndOneUpdate) {
  const Graph graph = layers({"linear 16", "relu", "linear outputs"}, {16}, DType::f16, 8, 16);
  const auto total = [&](int micro_batches) {
    const TrainingStep step = step_of(graph, micro_batches);
    return predict(passes_of(step, 1), step, plain_gpu());
  };
  const StepTime one = total(1), three = total(3);
  EXPECT_EQ(three.of(PassKind::linear_forward).launches, 3 * one.of(PassKind::linear_forward).launches);
  EXPECT_EQ(three.of(PassKind::optimizer).bytes, one.of(PassKind::optimizer).bytes);
  const double gradient = 4.0 * 2 * 256;
  EXPECT_EQ(three.of(PassKind::linear_weight_gradient).bytes,
            3 * one.of(PassKind::linear_weight_gradient).bytes + 2 * gradient);
}

// A breadcrumb is a kernel before each labelled operation, or before every sixteenth, and two frame the step.
TEST(StepTime, BreadcrumbsAreLaunches) {
  TrainingStep step = step_of(layers({"linear 16", "relu", "linear outputs"}, {16}, DType::f32, 8, 16));
  const auto launches = [&](int interval) {
    step.breadcrumb_interval = interval;
    return predict(passes_of(step, 1), step, plain_gpu()).of(PassKind::state).launches;
  };
  // Forward: input, two layers, loss. Backward: all but the input. The end of the all-reduce, and the optimizer.
  EXPECT_EQ(launches(0), 2);
  EXPECT_EQ(launches(1), 2 + 2 + 4 + 3 + 2);
  EXPECT_EQ(launches(4), 2 + 2 + 2);
}

TEST(StepTime, TheReportNamesEachKindOfPassAndEveryLevel) {
  const TrainingStep step =
      step_of(layers({"conv 8 3", "batchnorm", "relu", "globalpool", "linear outputs"}, {4, 4, 8}, DType::f16, 4, 10));
  const StepDescription about{"layers", "fp16", 1, 2, {"a note"}};
  const std::string text = report(step, about, *find_gpu("h200"));
  for (const char* expected :
       {"no GPU has confirmed it", "layers in fp16, fusion level 2, global batch 4 on 1 rank", "1 of 4 samples",
        "convolution wgrad", "batch norm apply", "level 0", "level 3", "predicted: ", "a note"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
  const auto json = nlohmann::json::parse(report_json(step, about, *find_gpu("h200")));
  ASSERT_EQ(json["levels"].size(), 4u);
  const StepTime level2 = predict(passes_of(step, 2), step, *find_gpu("h200"));
  EXPECT_EQ(json["levels"][2]["fusion"], 2);
  EXPECT_EQ(json["levels"][3]["fusion"], 3);
  EXPECT_DOUBLE_EQ(double(json["levels"][2]["step_seconds"]), level2.seconds());
  EXPECT_DOUBLE_EQ(double(json["levels"][2]["passes"]["norm_apply"]["bytes"]), level2.of(PassKind::norm_apply).bytes);
}

}  // namespace step_time_test
}  // namespace millrace::roofline
