// Cross-entropy with weights of classes, and with the Dice loss.
#include "ops/loss_checks.hpp"

namespace millrace {
namespace class_loss_test {

using namespace test;

TEST(CrossEntropyOp, WeighsClasses) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const float smoothing : {0.0f, 0.2f})
      for (const Shape& shape : {Shape{32, 10}, Shape{17, 1003}, Shape{3, 12289}}) {
        auto s = cross_entropy(shape, smoothing, dtype);
        for (std::int64_t c = 0; c < shape[1]; ++c) s.class_weights.push_back(float(c % 5) / 2);
        OpHarness h(s);
        h.state.loss_scale = 4;
        h.state.row_weight = 0.5;
        const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 4));
        const auto labels = h.set_src(1, {shape[0]}, DType::i32, labels_for(shape));
        h.want_diff_src(0, shape, dtype);
        h.forward();
        const auto loss = reference::cross_entropy(s, x, labels, 2);
        expect_state(h.state, loss);
        expect_close(get(h.args.diff_src[0]), loss.diff, tolerance.of(dtype), shape.str());
      }
}

// The factor multiplies the gradient only, and the sums are those of the loss's number.
TEST(CrossEntropyOp, HasAFactorAndSumsOfItsOwn) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Shape& shape : {Shape{19, 5}, Shape{3, 1003}}) {
      auto s = cross_entropy(shape, 0.1f, dtype);
      s.term = {3, 0.25f};
      OpHarness h(s);
      h.state.loss_scale = 8;
      const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 4));
      const auto labels = h.set_src(1, {shape[0]}, DType::i32, labels_for(shape));
      h.state.row_weight = 1;
      h.want_diff_src(0, shape, dtype);
      h.forward();
      const auto loss = reference::cross_entropy(s, x, labels, 2);
      expect_state(h.state, loss, 3);
      expect_close(get(h.args.diff_src[0]), loss.diff, tolerance.of(dtype), shape.str());
    }
}

// torch.nn.functional.cross_entropy(logits, labels, weight, reduction="sum", label_smoothing=0.1), by hand.
TEST(CrossEntropyReference, WeighsEachTermOfTheTarget) {
  auto s = cross_entropy({1, 2}, 0.1f);
  s.class_weights = {3, 1};
  const double p = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(reference::cross_entropy(s, {2, 0}, {0}, 1).sum, -(0.9 + 0.05) * 3 * std::log(p) - 0.05 * std::log(1 - p),
              1e-8);
}

Values labels_of_positions(const CrossEntropySpec& s) { return labels_for({s.positions(), s.classes()}); }

TEST(CrossEntropyOp, AddsTheDiceLossOfEachRow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape :
         {Shape{3, 5, 7, 4}, Shape{2, 1, 2}, Shape{2, 97, 61, 3}, Shape{1, 40, 256}, Shape{2, 300, 19}}) {
      auto s = cross_entropy(shape, 0, dtype);
      s.dice = 0.5f;
      OpHarness h(s);
      h.state.loss_scale = 32;
      h.state.row_weight = 0.5;
      const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 3));
      Values labels = labels_of_positions(s);
      if (shape[0] == 3) std::fill_n(labels.begin() + 35, 35, -1);  // a row without labels
      h.set_src(1, {s.positions()}, DType::i32, labels);
      h.want_diff_src(0, shape, dtype);
      h.forward();
      const auto loss = reference::cross_entropy(s, x, labels, 16.0 / double(s.positions_of_row()));
      expect_state(h.state, loss);
      expect_close(get(h.args.diff_src[0]), loss.diff, dtype == DType::f32 ? 4e-6 : 2 * tolerance.of(dtype),
                   shape.str());
    }
}

// monai.losses.DiceLoss(softmax=True, to_onehot_y=True) of two positions, by hand.
TEST(CrossEntropyReference, DiceLossOfTwoPositions) {
  auto s = cross_entropy({1, 2, 2});
  const double p = 1 / (1 + std::exp(-1.0));
  const double plain = reference::cross_entropy(s, {1, 0, 0, 1}, {0, 1}, 1).sum;
  s.dice = 0.5f;
  // Each class: the probability of its own position is p, and 1 - p at the other.
  EXPECT_NEAR(reference::cross_entropy(s, {1, 0, 0, 1}, {0, 1}, 1).sum,
              plain + 2 * 0.5 * (1 - (2 * p + 1e-5) / (2 + 1e-5)), 1e-12);
}

TEST(CrossEntropyReference, DiceGradientMatchesFiniteDifferences) {
  auto s = cross_entropy({2, 6, 3});
  s.dice = 0.7f;
  const auto x = random_values(36, 1, 2), labels = labels_of_positions(s);
  const auto f = [&](const Values& v) { return Values{3.0 * reference::cross_entropy(s, v, labels, 1).sum}; };
  expect_gradient(f, x, {1.0}, reference::cross_entropy(s, x, labels, 3.0).diff, "logits");
}

TEST(CrossEntropyOp, RefusesDiceWithoutPositions) {
  auto s = cross_entropy({2, 3});
  s.dice = 1;
  expect_error(Exit::config, "input 2x3 does not suit the Dice loss", [&] { OpHarness h(s); });
}

TEST(CrossEntropyOp, RefusesWeightsOfOtherClasses) {
  auto s = cross_entropy({2, 3});
  s.class_weights = {1, 2};
  expect_error(Exit::config, "2 class weights for input 2x3 with 3 classes", [&] { OpHarness h(s); });
}

}  // namespace class_loss_test
}  // namespace millrace
