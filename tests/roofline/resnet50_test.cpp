// The passes of ResNet-50 in fp16 with a batch of 256, against a count by hand from the shapes of its layers.
#include <gtest/gtest.h>

#include "roofline/networks.hpp"

namespace millrace::roofline {
namespace resnet50_test {

constexpr std::int64_t batch = 256;

StepTime on_h200(int fusion_level) {
  TrainingStep step = step_of(resnet50(DType::f16, batch));
  return predict(passes_of(step, fusion_level), step, *find_gpu("h200"));
}

double gigabytes(const StepTime& time, std::initializer_list<PassKind> kinds) {
  double bytes = 0;
  for (const PassKind kind : kinds) bytes += time.of(kind).bytes;
  return bytes * 1e-9;
}

// GB a step. The results of the 53 convolutions have 11.1 M values a sample: T = 5.69 GB. Those of the 16 blocks have
// 5.5 M: B = 2.83 GB. The inputs of the 32 convolutions that follow an inner norm of a block have N = 1.74 GB.
// The results of the 4 projections have 1.5 M values a sample: P = 0.77 GB. The stem has S = 0.41 GB; its pool has
// Q = 0.10 GB, and bytes for the positions.
struct Row {
  std::vector<PassKind> kinds;
  double level1, level2, level3;
  double tolerance = 0.02;
};
const std::vector<Row>& by_hand() {
  using enum PassKind;
  static const std::vector<Row> rows = {
      {{conv_forward}, 11.3, 11.3, 11.3},        // reads about T, writes T
      {{norm_statistics}, 5.7, 0.4, 0.4, 0.03},  // T; from level 2 only the stem's
      {{norm_apply},
       12.8,
       12.7,
       9.3},  // 2 T + B - 2 P - S + 2 Q, bytes, and a bit for each of 16 values; at level 3 without 2 N
      {{norm_gradient_sums}, 10.3, 6.85, 6.85},   // 2 T - P - 2 S + 2 Q, bytes and bits; without 2 N and their bits
      {{norm_gradient_apply}, 18.4, 18.3, 18.3},  // 3 T + B - 2 P - S + Q, bytes and bits
      // As forward, without the stem; the inputs of the blocks; N more from level 2.
      {{conv_data_gradient}, 13.6, 15.3, 15.3},
      {{conv_weight_gradient}, 11.3, 11.3, 11.3},  // as forward
      {{gradient_add}, 0, 0, 0},                   // the first convolution of a block adds its data gradient
      {{pool, input, linear_forward, linear_data_gradient, linear_weight_gradient, bias, loss, weights, optimizer},
       1.18,
       1.18,
       1.18}};
  return rows;
}

TEST(ResNet50, BytesOfEachPassAreThoseCountedByHand) {
  const StepTime level1 = on_h200(1), level2 = on_h200(2), level3 = on_h200(3);
  double sum1 = 0, sum2 = 0, sum3 = 0;
  for (const Row& row : by_hand()) {
    for (const auto& [time, expected] :
         {std::pair(&level1, row.level1), {&level2, row.level2}, {&level3, row.level3}}) {
      double bytes = 0;
      for (const PassKind kind : row.kinds) bytes += time->of(kind).bytes;
      EXPECT_NEAR(bytes * 1e-9, expected, row.tolerance * expected) << name_of(row.kinds.front());
    }
    sum1 += row.level1;
    sum2 += row.level2;
    sum3 += row.level3;
  }
  EXPECT_NEAR(level1.passes.bytes * 1e-9, sum1, 0.01 * sum1);
  EXPECT_NEAR(level2.passes.bytes * 1e-9, sum2, 0.01 * sum2);
  EXPECT_NEAR(level3.passes.bytes * 1e-9, sum3, 0.01 * sum3);
  EXPECT_EQ(level3.passes.launches, level2.passes.launches - 32);
}

// Without fusion, each of the 49 ReLUs reads and writes its tensor, and its gradient reads two and writes one.
TEST(ResNet50, LevelZeroHasPassesOfTheirOwnForReluAndAdd) {
  using enum PassKind;
  const StepTime level0 = on_h200(0), level1 = on_h200(1);
  EXPECT_EQ(level0.of(activation).launches, 2 * 49);
  EXPECT_EQ(level0.of(add).launches, 16);  // forward: the gradients share memory
  EXPECT_EQ(level1.of(activation).launches + level1.of(add).launches, 0);
  EXPECT_GT(level0.passes.bytes, level1.passes.bytes);
  // Of the three tensors at each block input one is left, which the data gradient reads.
  EXPECT_EQ(level0.of(gradient_add).launches, 16);
  EXPECT_EQ(level1.of(gradient_add).launches, 0);
  EXPECT_NEAR(gigabytes(level1, {conv_data_gradient}) - gigabytes(level0, {conv_data_gradient}),
              gigabytes(level0, {gradient_add}) / 3, 1e-6);
}

TEST(ResNet50, ProductsTakeTwelveGigaFlopsASample) {
  // 4.09 GMAC forward by torchvision; all but the stem have two products backward, the stem one.
  const double stem = 2.0 * 112 * 112 * 64 * 7 * 7 * 3;
  EXPECT_NEAR(on_h200(1).passes.flops / batch, 3 * 2 * 4.09e9 - stem, 0.1e9);
}

// With the rates of the count by hand, 800 TFLOP/s and 4.8 TB/s, it gave 10,940 and 11,815 images/s for ideal kernels.
// That was with 5.73 GB more for additions of gradients, 5 P = 3.85 GB more for the norms of projections, and 2.18 GB
// more for the stem, which take 2.45 ms (2.88 ms at 85% of the bandwidth).
TEST(ResNet50, IdealTimesAreThoseCountedByHand) {
  GpuModel gpu = *find_gpu("h200");
  gpu.fp16 = 800e12;
  const TrainingStep step = step_of(resnet50(DType::f16, batch));
  const auto ideal = [&](int fusion_level) {
    return double(batch) / predict(passes_of(step, fusion_level), step, gpu).passes.ideal_seconds;
  };
  EXPECT_NEAR(ideal(1), 12215, 240);
  EXPECT_NEAR(ideal(2), 13315, 260);
  gpu.memory_efficiency = 0.85;
  gpu.tensor_efficiency = 0.7;
  gpu.launch_gap = 0;
  const auto predicted = [&](int fusion_level) {
    return double(batch) / predict(passes_of(step, fusion_level), step, gpu).seconds();
  };
  EXPECT_NEAR(predicted(1), 9790, 190);
  EXPECT_NEAR(predicted(2), 10620, 210);
}

// 11 norms of 14x14x256 (25.7 MB) and 5 of 7x7x512 (12.8 MB) fit on the chip, the latter also with their gradient.
TEST(ResNet50, NormsThatFitOnTheChipReadTheirTensorsOnce) {
  TrainingStep step = step_of(resnet50(DType::f16, batch));
  const StepTime usual = predict(passes_of(step, 1), step, *find_gpu("h200"));
  step.on_chip = {132, 228 << 10};
  const StepTime time = predict(passes_of(step, 1), step, *find_gpu("h200"));
  const double large = 256 * 14 * 14 * 256 * 2, small = 256 * 7 * 7 * 512 * 2;
  const double saved = 11 * large + 5 * small + 5 * 2 * small;
  EXPECT_NEAR(usual.passes.bytes - time.passes.bytes, saved, 0.001 * saved);
  EXPECT_EQ(usual.passes.launches - time.passes.launches, 16 + 5);
}

// 158 products of convolutions and 53 copies of their weight gradients, 200 kernels of norms, 2 of pools, and some for
// input, head, loss, optimizer and state.
TEST(ResNet50, LevelOneLaunchesAboutFourHundredAndFiftyKernels) {
  TrainingStep step = step_of(resnet50(DType::f16, batch));
  step.breadcrumb_interval = 0;
  EXPECT_NEAR(predict(passes_of(step, 1), step, *find_gpu("h200")).passes.launches, 429, 10);
}

}  // namespace resnet50_test
}  // namespace millrace::roofline
