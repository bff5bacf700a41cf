// Operations between the layers of a transformer block.
#include <fmt/core.h>

#include "reference/elementwise.hpp"
#include "reference/linear_maps.hpp"
#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace gated_test {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

Values gated(const GatedSpec& s, const Values& x) {
  Values out;
  for (std::size_t p = 0; p < std::size_t(s.positions()); ++p)
    for (std::size_t c = 0; c < std::size_t(s.channels()); ++c) {
      const std::size_t at = p * std::size_t(s.src[-1]) + c;
      out.push_back(reference::activation(s.kind, x[at]) * x[at + std::size_t(s.channels())]);
    }
  return out;
}
Values gated_gradient(const GatedSpec& s, const Values& x, const Values& g) {
  Values out(x.size());
  const std::size_t channels = std::size_t(s.channels());
  for (std::size_t p = 0; p < std::size_t(s.positions()); ++p)
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t a = p * 2 * channels + c, b = a + channels;
      out[a] = g[p * channels + c] * reference::activation_slope(s.kind, x[a]) * x[b];
      out[b] = g[p * channels + c] * reference::activation(s.kind, x[a]);
    }
  return out;
}

TEST(GatedOp, ForwardAndGradientMatchForEveryActivation) {
  constexpr Tolerance tolerance{2e-6, 6e-3, 8e-4};
  for (const ActivationTraits& kind : activations)
    for (const DType dtype : dtypes)
      for (const Shape& shape : {Shape{2, 5, 6}, Shape{3, 32}, Shape{2, 9014}}) {
        const GatedSpec s{shape, kind.kind, dtype, Mode::train};
        OpHarness h(s);
        const Values x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 3)),
                     g = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
        h.want_dst(s.dst(), dtype);
        h.want_diff_src(0, shape, dtype);
        h.forward();
        h.backward();
        const std::string what = fmt::format("{} {} {}", kind.name, shape.str(), name_of(dtype));
        expect_close(get(h.args.dst), gated(s, x), tolerance.of(dtype), what);
        expect_close(get(h.args.diff_src[0]), gated_gradient(s, x, g), tolerance.of(dtype), what + " gradient");
      }
}

TEST(GatedReference, GradientMatchesFiniteDifferences) {
  for (const ActivationTraits& kind : activations) {
    const GatedSpec s{{2, 3, 8}, kind.kind, DType::f32, Mode::train};
    const Values x = random_values(s.src.count(), 1, 3), g = random_values(s.dst().count(), 2);
    expect_gradient([&](const Values& v) { return gated(s, v); }, x, g, gated_gradient(s, x, g), kind.name);
  }
}

TEST(ScaleOp, ForwardAndGradientsMatch) {
  constexpr Tolerance tolerance{2e-6, 5e-3, 7e-4};
  for (const DType dtype : dtypes)
    for (const Shape& shape : {Shape{3, 5}, Shape{2, 7, 24}, Shape{5, 3, 2, 96}, Shape{700, 16}, Shape{2, 5001}})
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const ScaleSpec s{shape, dtype, Mode::train};
        const std::int64_t channels = shape[-1];
        OpHarness h(s);
        const Values x = h.set_src(0, shape, dtype, random_values(shape.count(), 1)),
                     w = h.set_weight(0, {channels}, DType::f32, random_values(channels, 2)),
                     g = h.set_diff_dst(shape, dtype, random_values(shape.count(), 3));
        Values sums = h.want_diff_weight(0, {channels}, mode, random_values(channels, 4));
        h.want_dst(shape, dtype);
        h.want_diff_src(0, shape, dtype);
        h.forward();
        h.backward();
        Values y = x, dx = g;
        for (std::size_t i = 0; i < x.size(); ++i) {
          y[i] *= w[i % w.size()];
          dx[i] *= w[i % w.size()];
          sums[i % w.size()] += x[i] * g[i];
        }
        expect_close(get(h.args.dst), y, tolerance.of(dtype), shape.str());
        expect_close(get(h.args.diff_src[0]), dx, tolerance.of(dtype), shape.str());
        expect_close(get(h.args.diff_weight[0]), sums, 3e-6, shape.str() + " weight");
      }
}

TEST(RotaryOp, RotatesQueriesAndKeysAndBackward) {
  constexpr Tolerance tolerance{1e-6, 6e-3, 8e-4};
  for (const DType dtype : dtypes)
    for (const RotarySpec& of : {RotarySpec{{2, 5, 12}, 2, 2, 10000}, RotarySpec{{1, 9, 64}, 2, 1, 500000},
                                 RotarySpec{{2, 3, 96}, 1, 1, 100}, RotarySpec{{2, 4, 24}, 3, 0, 100}}) {
      RotarySpec s = of;
      s.dtype = dtype;
      OpHarness h(s);
      const Values x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1)),
                   g = h.set_diff_dst(s.src, dtype, random_values(s.src.count(), 2));
      h.want_dst(s.src, dtype);
      h.want_diff_src(0, s.src, dtype);
      h.forward();
      h.backward();
      const auto f = [&](const Values& v) { return reference::rotary(s, v); };
      expect_close(get(h.args.dst), f(x), tolerance.of(dtype), s.src.str());
      expect_close(get(h.args.diff_src[0]), reference::linear_gradient(f, x.size(), g), tolerance.of(dtype),
                   s.src.str() + " gradient");
    }
}

// The angle of a late position is many turns.
TEST(RotaryOp, LatePositionsAreExact) {
  const RotarySpec s{{1, 20000, 6}, 1, 1, 10000, DType::f32, Mode::infer};
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
  h.want_dst(s.src, s.dtype);
  h.forward();
  expect_close(get(h.args.dst), reference::rotary(s, x), 1e-6, "20000 positions");
}

TEST(RotaryOp, APartOfATextBeginsAtItsPosition) {
  constexpr Tolerance tolerance{2e-6, 5e-3, 7e-4};
  for (const DType dtype : dtypes) {
    const RotarySpec whole{{1, 9, 32}, 2, 1, 100, dtype, Mode::infer};
    const Values x = OpHarness(whole).set_src(0, whole.src, dtype, random_values(whole.src.count(), 1));
    RotarySpec s = whole;
    s.src[1] = 3;
    s.window = 9;
    OpHarness h(s);
    h.state.position = 6;
    h.set_src(0, s.src, dtype, Values(x.begin() + 6 * 32, x.end()));
    h.want_dst(s.src, dtype);
    h.forward();
    const Values expected = reference::rotary(whole, x);
    expect_close(get(h.args.dst), Values(expected.begin() + 6 * 32, expected.end()), tolerance.of(dtype), "part");
  }
}

TEST(RotaryOp, OddHeadsAreRefused) {
  expect_error(Exit::config, "their size must be even", [] { RotarySpec{{1, 4, 9}, 1, 1}.check(); });
  expect_error(Exit::config, "does not hold 5 heads", [] { RotarySpec{{1, 4, 12}, 5, 0}.check(); });
  expect_error(Exit::config, "theta above 1", [] { RotarySpec{{1, 4, 12}, 1, 1, 1}.check(); });
}

}  // namespace gated_test
}  // namespace millrace
