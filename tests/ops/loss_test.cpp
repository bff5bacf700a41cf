
#include "cpu/common/threads.hpp"
#include "ops/loss_checks.hpp"

namespace millrace {
namespace loss_test {

using namespace test;

TEST(CrossEntropyOp, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const float smoothing : {0.0f, 0.1f})
      for (const Shape& shape :
           {Shape{32, 10}, Shape{1, 2}, Shape{5, 1}, Shape{17, 1000}, Shape{4, 5001}, Shape{9, 1003}, Shape{2, 12288},
            Shape{2, 12289}, Shape{3, 50257}, Shape{611, 4}, Shape{200, 16}, Shape{130, 17}}) {
        const auto s = cross_entropy(shape, smoothing, dtype);
        OpHarness h(s);
        h.state.loss_scale = 1024;
        h.state.row_weight = 1.0f / 32;
        const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 8));
        const auto labels = h.set_src(1, {shape[0]}, DType::i32, labels_for(shape));
        h.want_diff_src(0, shape, dtype);
        h.forward();
        h.backward();
        const auto loss = reference::cross_entropy(s, x, labels, 1024.0 / 32);
        expect_state(h.state, loss);
        expect_close(get(h.args.diff_src[0]), loss.diff, tolerance.of(dtype), shape.str());
      }
}

// Labels of each token of a row: a position weighs a part of its row, and the sums count positions.
TEST(CrossEntropyOp, PositionsShareTheWeightOfTheirRow) {
  const auto s = cross_entropy({4, 3, 2, 11});
  OpHarness h(s);
  h.state.loss_scale = 8;
  h.state.row_weight = 0.25f;
  Values labels = labels_for({24, 11});
  const auto x = h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1, 3));
  h.set_src(1, {4, 3, 2}, DType::i32, labels);
  h.want_diff_src(0, s.src, DType::f32);
  h.forward();
  const auto loss = reference::cross_entropy(s, x, labels, 8 * 0.25 / 6);
  expect_state(h.state, loss);
  expect_close(get(h.args.diff_src[0]), loss.diff, tolerance.f32, s.src.str());
}

TEST(CrossEntropyReference, GradientMatchesFiniteDifferences) {
  for (const float smoothing : {0.0f, 0.2f}) {
    const auto s = cross_entropy({6, 7}, smoothing);
    const auto x = random_values(42, 1, 3), labels = labels_for(s.src);
    const auto f = [&](const Values& v) { return Values{3.0 * reference::cross_entropy(s, v, labels, 1).sum}; };
    expect_gradient(f, x, {1.0}, reference::cross_entropy(s, x, labels, 3.0).diff, "logits");
  }
}

TEST(CrossEntropyOp, SecondMicroBatchAddsToTheSums) {
  const auto s = cross_entropy({9, 12});
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, DType::f32, random_values(108, 1));
  const auto labels = h.set_src(1, {9}, DType::i32, labels_for(s.src));
  h.forward();
  h.forward();
  const auto loss = reference::cross_entropy(s, x, labels, 1);
  EXPECT_NEAR(h.state.losses[0].sum, 2 * loss.sum, 1e-5);
  EXPECT_EQ(h.state.losses[0].counted, 2 * loss.counted);
  EXPECT_EQ(h.state.losses[0].top5, 2 * loss.top5);
}

TEST(CrossEntropyOp, LowerClassWinsTies) {
  const auto s = cross_entropy({2, 10});
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, Values(20, 1.0));
  h.set_src(1, {2}, DType::i32, {0, 5});
  h.forward();
  EXPECT_EQ(h.state.losses[0].top1, 1u);
  EXPECT_EQ(h.state.losses[0].top5, 1u);
}

TEST(CrossEntropyOp, HugeLogitsStayFinite) {
  const auto s = cross_entropy({1, 3});
  OpHarness h(s);
  h.state.row_weight = 1;
  h.set_src(0, s.src, DType::f32, {3e38, -3e38, 0});
  h.set_src(1, {1}, DType::i32, {0});
  h.want_diff_src(0, s.src, DType::f32);
  h.forward();
  EXPECT_EQ(h.state.losses[0].sum, 0);
  EXPECT_EQ(get(h.args.diff_src[0]), (Values{0, 0, 0}));
}

TEST(CrossEntropyOp, NanLogitGivesNanLossAndNoHit) {
  for (const std::size_t at : {0, 1, 9}) {
    const auto s = cross_entropy({1, 10});
    OpHarness h(s);
    Values x = random_values(10, 1);
    x[at] = std::nan("");
    h.set_src(0, s.src, DType::f32, x);
    h.set_src(1, {1}, DType::i32, {double(at)});
    h.want_diff_src(0, s.src, DType::f32);
    h.forward();
    EXPECT_TRUE(std::isnan(h.state.losses[0].sum));
    EXPECT_TRUE(std::isnan(get(h.args.diff_src[0])[at]));
    EXPECT_EQ(h.state.losses[0].top1, 0u);
  }
}

TEST(CrossEntropyOp, LabelBeyondTheClassesGivesNanLoss) {
  const auto s = cross_entropy({2, 10});
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, random_values(20, 1));
  h.set_src(1, {2}, DType::i32, {3, 10});
  h.want_diff_src(0, s.src, DType::f32);
  h.forward();
  EXPECT_TRUE(std::isnan(h.state.losses[0].sum));
}

TEST(CrossEntropyOp, SumsDoNotDependOnTheThreadCount) {
  for (const Shape& shape : {Shape{611, 97}, Shape{5000, 7}}) {
    const auto s = cross_entropy(shape);
    const int threads = cpu::thread_count();
    double sums[3];
    for (int i = 0; i < 3; ++i) {
      cpu::set_thread_count(i + 1);
      OpHarness h(s);
      h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1));
      h.set_src(1, {shape[0]}, DType::i32, labels_for(s.src));
      h.forward();
      sums[i] = h.state.losses[0].sum;
    }
    cpu::set_thread_count(threads);
    EXPECT_EQ(sums[0], sums[1]);
    EXPECT_EQ(sums[0], sums[2]);
  }
}

TEST(CrossEntropyOp, InferenceWritesNoGradient) {
  auto s = cross_entropy({3, 5});
  s.mode = Mode::infer;
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, random_values(15, 1));
  h.set_src(1, {3}, DType::i32, {0, 1, 2});
  h.args.diff_src[0] = h.args.src[0];
  const Values before = get(h.args.src[0]);
  h.forward();
  EXPECT_EQ(get(h.args.src[0]), before);
  EXPECT_EQ(h.state.losses[0].counted, 3u);
}

TEST(CrossEntropyOp, CountsLabelsAndPredictions) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Shape& shape : {Shape{2500, 7}, Shape{40, 1000}, Shape{9, 1}}) {
      auto s = cross_entropy(shape, 0, dtype);
      s.mode = Mode::infer;
      OpHarness h(s);
      Values x = random_values(shape.count(), 1);
      for (double& v : x) v = std::round(2 * v);  // many equal logits
      h.set_src(0, shape, dtype, x);
      const auto labels = h.set_src(1, {shape[0]}, DType::i32, labels_for(shape));
      expect_counts(metrics_of(h, true, s.metric_count()), reference::cross_entropy(s, x, labels, 1).metrics,
                    s.confusion_count(), shape.str());
    }
  EXPECT_EQ(cross_entropy({2, 1025}).metric_count(), 0);
}

}  // namespace loss_test
}  // namespace millrace
