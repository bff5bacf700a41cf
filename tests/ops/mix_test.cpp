#include "reference/mix.hpp"

#include <cmath>

#include "ops/loss_checks.hpp"

namespace millrace {
namespace mix_test {

using namespace test;

MixSpec mixed(const Shape& shape, float mixup, float cutmix, DType dtype = DType::f32) {
  return {shape, {mixup, cutmix, 43}, dtype, Mode::train};
}

Values ids_for(std::int64_t rows, double first = 11) {
  Values ids;
  for (std::int64_t i = 0; i < rows; ++i) ids.push_back(double(i * 5000000000) + first);
  return ids;
}

// mixup: 1/2 or 1, cutmix: 1, see reference::beta_quantile(). Rows of one value, of odd lengths and longer than a
// block.
TEST(MixOp, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{9, 7}, Shape{8, 40, 3}, Shape{12, 13, 16, 3}, Shape{6, 32, 32, 8},
                               Shape{10, 4, 5, 6, 2}, Shape{3, 5003}, Shape{1, 9, 9, 1}})
      for (const MixOptions& options : {MixOptions{0.5f, 0}, MixOptions{1, 0}, MixOptions{0, 1}, MixOptions{0.5f, 1}}) {
        if (shape.rank < 3 && options.cutmix > 0) continue;
        const MixSpec s = mixed(shape, options.mixup, options.cutmix, dtype);
        for (const double first : {11.0, 12.0, 13.0}) {  // both kinds are chosen
          OpHarness h(s);
          h.state.epoch = 5;
          const Values ids = ids_for(shape[0], first), labels = labels_for({shape[0], 5});
          const Values x = h.set_src(0, shape, dtype, random_values(shape.count(), 1));
          h.set_src(1, {shape[0]}, DType::i64, ids);
          h.set_src(2, {shape[0]}, DType::i32, labels);
          h.want_dst(shape, dtype);
          h.forward();
          const auto rows = reference::mixed_rows(s, ids, labels, 5);
          expect_close(get(h.args.dst), reference::mix(s, x, rows), Tolerance{3e-7, 4e-3, 5e-4}.of(dtype), shape.str());
        }
      }
}

TEST(MixOp, ARowWithoutLabelIsNotMixed) {
  const MixSpec s = mixed({4, 3}, 1, 0);
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, DType::f32, random_values(12, 1));
  h.set_src(1, {4}, DType::i64, ids_for(4));
  h.set_src(2, {4}, DType::i32, {1, 0, -1, 2});
  h.want_dst(s.src, DType::f32);
  h.forward();
  const Values y = get(h.args.dst);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(y[i] == x[i], i / 3 == 1 || i / 3 == 2) << i;
}

TEST(MixOp, RefusesABoxInRowsOfFeatures) {
  expect_error(Exit::config, "samples of 4x3 have no spatial axes", [] { OpHarness h(mixed({4, 3}, 0, 1)); });
}

TEST(MixQuantiles, AreThoseOfTheBetaDistribution) {
  for (const double alpha : {0.5, 1.0}) {
    const auto found = beta_quantiles(alpha, 4096);
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], reference::beta_quantile(alpha, (double(i) + 0.5) / 4096), 1e-6) << alpha << " " << i;
  }
  for (const double alpha : {0.01, 0.1, 0.2, 0.4, 2.0, 8.0, 1000.0}) {
    double mean = 0, variance = 0;
    for (const double x : beta_quantiles(alpha, 4096)) {
      mean += x / 4096;
      variance += (x - 0.5) * (x - 0.5) / 4096;
    }
    EXPECT_NEAR(mean, 0.5, 1e-9) << alpha;
    EXPECT_NEAR(variance, 0.25 / (2 * alpha + 1), 1e-3 * variance)
        << alpha;  // the middles of intervals, not all values
  }
}

// Rows of 1 and 0 in turn become their shares. The bound of the distance of Kolmogorov and Smirnov is exceeded once in
// 1000 seeds.
TEST(MixOp, SharesAreDistributedAsBeta) {
  const MixSpec s = mixed({6000, 1}, 0.5f, 0);
  OpHarness h(s);
  Values x, labels(6000, 0.0);
  for (int i = 0; i < 6000; ++i) x.push_back(i % 2);
  h.set_src(0, s.src, DType::f32, x);
  h.set_src(1, {6000}, DType::i64, ids_for(6000));
  h.set_src(2, {6000}, DType::i32, labels);
  h.want_dst(s.src, DType::f32);
  h.forward();
  Values shares = get(h.args.dst);
  for (std::size_t i = 0; i < shares.size(); i += 2) shares[i] = 1 - shares[i];
  std::ranges::sort(shares);
  double distance = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double below = 2 / std::numbers::pi * std::asin(std::sqrt(shares[i]));  // arcsine law: Beta(1/2, 1/2)
    distance = std::max(distance, std::abs(below - (double(i) + 0.5) / 6000));
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(6000.0));
}

// share * loss(a) + (1 - share) * loss(b), through smoothing and class weights, and the hits of the larger share.
TEST(MixLoss, MixesTheLossesOfBothLabels) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{20, 3}, Shape{9, 40}, Shape{17, 1003}, Shape{2, 12289}})
      for (const MixOptions& options : {MixOptions{0.5f, 0, 43}, MixOptions{0, 1, 43}})
        for (const float smoothing : {0.0f, 0.1f}) {
          auto s = cross_entropy(shape, smoothing, dtype);
          if (shape[1] != 40)
            for (std::int64_t c = 0; c < shape[1]; ++c) s.class_weights.push_back(float(c % 5) / 2);
          s.mix = MixSpec{{shape[0], 8, 9, 3}, options, dtype, Mode::train};
          OpHarness h(s);
          h.state.epoch = 5;
          h.state.loss_scale = 64;
          h.state.row_weight = 1.0f / 32;
          const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 8));
          const Values labels = h.set_src(1, {shape[0]}, DType::i32, labels_for(shape)), ids = ids_for(shape[0]);
          h.set_src(2, {shape[0]}, DType::i64, ids);
          h.want_diff_src(0, shape, dtype);
          h.forward();
          const auto rows = reference::mixed_rows(*s.mix, ids, labels, 5);
          auto alone = s;
          alone.src[0] = 1;
          alone.mix.reset();
          reference::Loss loss;
          loss.diff.resize(x.size());
          const auto width = std::size_t(shape[1]);
          for (std::size_t r = 0; r < rows.size(); ++r) {
            const Values logits(x.begin() + std::ptrdiff_t(r * width), x.begin() + std::ptrdiff_t((r + 1) * width));
            const bool mixes = rows[r].partner >= 0, swapped = rows[r].share < 0.5;
            const double other = mixes ? labels[std::size_t(rows[r].partner)] : 0;
            const auto add = [&](double label, double share, bool larger) {
              const auto part = reference::cross_entropy(alone, logits, {label}, 2 * share);
              loss.sum += share * part.sum;
              loss.weight += share * part.weight;
              loss.top1 += larger * part.top1;
              loss.top5 += larger * part.top5;
              loss.counted += larger * part.counted;
              for (std::size_t c = 0; c < width; ++c) loss.diff[r * width + c] += part.diff[c];
            };
            add(labels[r], rows[r].share, !swapped);
            if (mixes) add(other, 1 - rows[r].share, swapped);
          }
          expect_state(h.state, loss);
          expect_close(get(h.args.diff_src[0]), loss.diff, 2 * tolerance.of(dtype), shape.str());
        }
}

TEST(MixLoss, ALabelBeyondTheClassesGivesNanLoss) {
  auto s = cross_entropy({3, 10});
  s.mix = mixed({3, 4}, 1, 0);
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, random_values(30, 1));
  h.set_src(1, {3}, DType::i32, {1, 10, 2});
  h.set_src(2, {3}, DType::i64, ids_for(3));
  h.forward();
  EXPECT_TRUE(std::isnan(h.state.losses[0].sum));
}

}  // namespace mix_test
}  // namespace millrace
