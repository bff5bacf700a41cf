#include "ops/loss_checks.hpp"

namespace millrace {
namespace pointwise_loss_test {

using namespace test;

using Kind = PointwiseLossSpec::Kind;
constexpr Kind kinds[] = {Kind::mse, Kind::mae, Kind::smooth_l1, Kind::binary_cross_entropy};

PointwiseLossSpec pointwise(Kind kind, const Shape& src, DType dtype = DType::f32) {
  return {.kind = kind, .src = src, .beta = 0.75f, .dtype = dtype};
}

Values targets_for(const PointwiseLossSpec& s) {
  Values y = random_values(s.src.count(), 2);
  for (std::size_t i = 0; s.binary() && i < y.size(); ++i)
    y[i] = s.targets == DType::i32 ? double(int(i % 3) - 1) : std::abs(y[i]) < 1 ? std::abs(y[i]) : 1;
  return y;
}

void expect_reference(PointwiseLossSpec s) {
  const std::string what = std::string(name_of(s.kind)) + " " + s.src.str();
  OpHarness h(s);
  h.state.loss_scale = 64;
  h.state.row_weight = 0.25f;
  const auto x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
  const auto target = h.set_src(1, s.src, s.targets, targets_for(s));
  h.want_diff_src(0, s.src, s.dtype);
  h.forward();
  h.backward();
  Values origins;
  for (std::int64_t o = 0; !s.binary() && o < s.outputs(); ++o) origins.push_back(double(o % 5) / 4 - 1);
  const auto loss = reference::pointwise_loss(s, x, target, 16 * double(s.term.factor), origins);
  expect_state(h.state, loss, s.term.number);
  expect_close(get(h.args.diff_src[0]), loss.diff, tolerance.of(s.dtype), what);
  s.mode = Mode::infer;
  OpHarness evaluation(s);
  evaluation.set_src(0, s.src, s.dtype, x);
  evaluation.set_src(1, s.src, s.targets, target);
  const Values metrics = metrics_of(evaluation, s.binary(), s.metric_count(), origins);
  if (s.binary())
    expect_counts(metrics, loss.metrics, s.confusion_count(), what);
  else
    expect_close(metrics, loss.metrics, 1e-12, what);
  expect_state(evaluation.state, loss, s.term.number);
}

TEST(PointwiseLossOp, MatchesReference) {
  for (const Kind kind : kinds)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Shape& shape :
           {Shape{7, 43}, Shape{1, 1}, Shape{5, 64}, Shape{300, 2}, Shape{3, 5001}, Shape{2, 8192}})
        expect_reference(pointwise(kind, shape, dtype));
}

TEST(PointwiseLossOp, HasAFactorAndSumsOfItsOwn) {
  for (const Kind kind : kinds) {
    auto s = pointwise(kind, {5, 24}, DType::f16);
    s.term = {StepState::max_losses - 1, 0.125f};
    expect_reference(s);
  }
}

TEST(PointwiseLossOp, IgnoresNegativeIntegers) {
  for (const Shape& shape : {Shape{7, 43}, Shape{5, 64}, Shape{9, 1}}) {
    auto s = pointwise(Kind::binary_cross_entropy, shape);
    s.targets = DType::i32;
    expect_reference(s);
  }
}

TEST(PointwiseLossOp, NanPredictionGivesNanLoss) {
  for (const Kind kind : kinds) {
    OpHarness h(pointwise(kind, {1, 3}));
    h.set_src(0, {1, 3}, DType::f32, {1, std::nan(""), 0});
    h.set_src(1, {1, 3}, DType::f32, {1, 0, 0});
    h.want_diff_src(0, {1, 3}, DType::f32);
    h.forward();
    EXPECT_TRUE(std::isnan(h.state.losses[0].sum)) << name_of(kind);
  }
}

TEST(PointwiseLossOp, TargetBeyondOneGivesNanLoss) {
  OpHarness h(pointwise(Kind::binary_cross_entropy, {2, 1}));
  h.set_src(0, {2, 1}, DType::f32, {1, 1});
  h.set_src(1, {2, 1}, DType::f32, {1, 2});
  h.want_diff_src(0, {2, 1}, DType::f32);
  h.forward();
  EXPECT_TRUE(std::isnan(h.state.losses[0].sum));
}

TEST(PointwiseLossOp, HugeLogitsStayFinite) {
  OpHarness h(pointwise(Kind::binary_cross_entropy, {1, 2}));
  h.state.row_weight = 1;
  h.set_src(0, {1, 2}, DType::f32, {1e30, -1e30});
  h.set_src(1, {1, 2}, DType::f32, {1, 0});
  h.want_diff_src(0, {1, 2}, DType::f32);
  h.forward();
  EXPECT_EQ(h.state.losses[0].sum, 0);
  EXPECT_EQ(get(h.args.diff_src[0]), (Values{0, 0}));
}

TEST(PointwiseLossOp, RefusesIntegersForRegression) {
  auto s = pointwise(Kind::mae, {2, 3});
  s.targets = DType::i32;
  expect_error(Exit::config, "mae: targets of type int32 are not supported", [&] { OpHarness h(s); });
  expect_error(Exit::config, "beta = 0 is not above 0", [] {
    OpHarness h(Spec(PointwiseLossSpec{.kind = Kind::smooth_l1, .src = {2, 3}, .beta = 0}));
  });
}

TEST(PointwiseLossReference, GradientMatchesFiniteDifferences) {
  for (const Kind kind : kinds) {
    const auto s = pointwise(kind, {5, 9});
    const auto x = random_values(45, 1), target = targets_for(s);
    const double part = s.binary() ? 1.0 / 9 : 1;
    const auto f = [&](const Values& v) { return Values{2.0 * part * reference::pointwise_loss(s, v, target, 1).sum}; };
    expect_gradient(f, x, {1.0}, reference::pointwise_loss(s, x, target, 2).diff, name_of(kind));
  }
}

}  // namespace pointwise_loss_test
}  // namespace millrace
