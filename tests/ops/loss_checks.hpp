// What the tests of the losses have in common.
#pragma once
#include <bit>

#include "reference/loss.hpp"
#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {

// float32: the error of exponentials is about one unit in the last place. 16 bits: the gradient is rounded.
constexpr Tolerance tolerance{1e-6, 4e-3, 5e-4};

inline CrossEntropySpec cross_entropy(Shape src, float smoothing = 0, DType dtype = DType::f32) {
  CrossEntropySpec s;
  s.src = src;
  s.label_smoothing = smoothing;
  s.dtype = dtype;
  return s;
}

inline Values labels_for(const Shape& src) {
  Values labels;
  for (std::int64_t i = 0; i < src[0]; ++i) labels.push_back(i % 7 == 3 ? -1 : double(i * 31 % src[1]));
  return labels;
}

// number: LossTerm::number.
inline void expect_state(const StepState& state, const reference::Loss& loss, int number = 0) {
  const LossSums& sums = state.losses[number];
  EXPECT_NEAR(sums.sum, loss.sum, 1e-6 * std::abs(loss.sum) + 1e-6);
  EXPECT_NEAR(sums.weight, loss.weight, 1e-6 * loss.weight);
  EXPECT_EQ(sums.top1, loss.top1);
  EXPECT_EQ(sums.top5, loss.top5);
  EXPECT_EQ(sums.counted, loss.counted);
  EXPECT_EQ(state.losses[number == 0 ? 1 : 0].weight, 0) << "of another loss";
}

// The metrics of an evaluation, counts or sums, added to what is there: zeros, and `last` at the end.
inline Values metrics_of(OpHarness& h, bool counts, std::int64_t count, const Values& last = {}) {
  std::vector<std::uint64_t> before(std::size_t(count) - last.size());
  for (const double value : last) before.push_back(std::bit_cast<std::uint64_t>(value));
  DeviceVector<std::uint64_t> metrics{before};
  metrics.to_device();
  h.args.metrics = metrics.data();
  h.forward();
  metrics.to_host();
  Values out;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = metrics[std::size_t(i)];
    out.push_back(counts ? double(bits) : std::bit_cast<double>(bits));
  }
  return out;
}

// The counts of an evaluation: the confusion matrix, then the histograms of ScoreBins. A score that lies at the border
// of two bins may be counted in either.
inline void expect_counts(const Values& actual, const Values& expected, std::int64_t confusion,
                          const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double below = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::int64_t(i) < confusion) {
      ASSERT_EQ(actual[i], expected[i]) << what << ", cell " << i;
      continue;
    }
    below += actual[i] - expected[i];
    ASSERT_LE(std::abs(below), 1) << what << ", bin " << i;
    if ((std::int64_t(i) - confusion + 1) % ScoreBins::count == 0) {
      ASSERT_EQ(below, 0) << what << ", histogram before bin " << i;
    }
  }
}

}  // namespace millrace::test
