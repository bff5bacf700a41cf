#include "reference/recurrent.hpp"

#include <fmt/core.h>

#include "cpu/common/parallel.hpp"
#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace recurrent_test {

using namespace test;
using Kind = RecurrentSpec::Kind;
using reference::RecurrentValues;

struct Case {
  std::int64_t rows, steps, features, units;
  bool bias, reverse;
};
// One step, one row, odd sizes, whole vectors.
const Case cases[] = {{3, 5, 7, 6, true, false},   {4, 6, 8, 16, true, true}, {1, 3, 4, 5, false, false},
                      {5, 1, 3, 4, true, true},    {3, 9, 1, 1, true, false}, {9, 4, 24, 33, true, true},
                      {16, 3, 32, 64, false, true}};

constexpr Kind kinds[] = {Kind::lstm, Kind::gru, Kind::rnn_tanh, Kind::rnn_relu};

RecurrentSpec spec_of(const Case& c, Kind kind, DType dtype = DType::f32, Mode mode = Mode::train) {
  return {{c.rows, c.steps, c.features}, c.units, kind, c.bias, c.reverse, true, false, dtype, mode};
}

// A harness with values, which are rounded to the types of the operation.
struct Computed {
  explicit Computed(const RecurrentSpec& s, GradMode mode = GradMode::write) : h(s), spec(s) {
    const double scale = 1 / std::sqrt(double(s.units));
    const auto scaled = [&](std::int64_t count, std::uint64_t seed) {
      Values v = random_values(count, seed);
      for (double& x : v) x *= scale;
      return v;
    };
    const Shape bias{s.width()};
    in.src = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
    in.weight_ih = h.set_weight(0, s.weight_ih(), s.dtype, scaled(s.weight_ih().count(), 2));
    in.weight_hh = h.set_weight(1, s.weight_hh(), s.dtype, scaled(s.weight_hh().count(), 3));
    if (s.bias) {
      in.bias_ih = h.set_weight(2, bias, DType::f32, scaled(s.width(), 4));
      in.bias_hh = h.set_weight(3, bias, DType::f32, scaled(s.width(), 5));
    }
    h.want_dst(s.dst(), s.dtype);
    h.repack();
    h.forward();
    if (s.mode == Mode::infer) return;
    diff_dst = h.set_diff_dst(s.dst(), s.dtype, random_values(s.dst().count(), 6));
    h.want_diff_src(0, s.src, s.dtype);
    old.weight_ih = h.want_diff_weight(0, s.weight_ih(), mode, random_values(s.weight_ih().count(), 7));
    old.weight_hh = h.want_diff_weight(1, s.weight_hh(), mode, random_values(s.weight_hh().count(), 8));
    if (s.bias) {
      old.bias_ih = h.want_diff_weight(2, bias, mode, random_values(s.width(), 9));
      old.bias_hh = h.want_diff_weight(3, bias, mode, random_values(s.width(), 10));
    }
    h.backward();
  }
  std::vector<Values> results() const {
    std::vector<Values> out{get(h.args.dst), get(h.args.diff_src[0])};
    for (std::size_t w = 0; w < (spec.bias ? 4u : 2u); ++w) out.push_back(get(h.args.diff_weight[w]));
    return out;
  }

  OpHarness h;
  RecurrentSpec spec;
  RecurrentValues in, old;
  Values diff_dst;
};

Values sum_of(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

void expect_reference(const Case& c, Kind kind, DType dtype, GradMode mode, bool cell_state = false) {
  RecurrentSpec spec = spec_of(c, kind, dtype);
  spec.cell_state = cell_state;
  const Computed run(spec, mode);
  reference::Recurrent expected(run.spec, run.in);
  const RecurrentValues g = expected.gradients(run.diff_dst);
  // h and the gradients of the gates are rounded to 16 bits at each step.
  constexpr Tolerance forward{2e-6, 1e-2, 1.5e-3}, backward{1e-5, 2.5e-2, 4e-3};
  const std::string what =
      fmt::format("{} {} {} units {}", name_of(Spec(run.spec)), run.spec.src.str(), c.units, name_of(dtype));
  const OpArgs& args = run.h.args;
  expect_close(get(args.dst), expected.dst, forward.of(dtype), what);
  expect_close(get(args.diff_src[0]), g.src, backward.of(dtype), what + " src");
  expect_close(get(args.diff_weight[0]), sum_of(g.weight_ih, run.old.weight_ih), backward.of(dtype), what + " W_ih");
  expect_close(get(args.diff_weight[1]), sum_of(g.weight_hh, run.old.weight_hh), backward.of(dtype), what + " W_hh");
  if (!c.bias) return;
  expect_close(get(args.diff_weight[2]), sum_of(g.bias_ih, run.old.bias_ih), backward.of(dtype), what + " b_ih");
  expect_close(get(args.diff_weight[3]), sum_of(g.bias_hh, run.old.bias_hh), backward.of(dtype), what + " b_hh");
}

TEST(RecurrentOp, ForwardAndBackwardMatchReference) {
  for (const Kind kind : kinds)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Case& c : cases)
        for (const GradMode mode : {GradMode::write, GradMode::add}) expect_reference(c, kind, dtype, mode);
}

TEST(RecurrentOp, StateOfTheCellMatchesReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases)
      if (dtype == DType::f32 || c.units > 1)  // of one unit, few rounded numbers cancel
        expect_reference(c, Kind::lstm, dtype, GradMode::write, true);
}

// More units than the 2048 that the kernels of the processor take at once.
TEST(RecurrentOp, ManyUnitsMatchReference) {
  expect_reference({1, 2, 1, 2052, true, false}, Kind::gru, DType::f32, GradMode::write);
}

TEST(RecurrentOp, InferenceEqualsTheForwardPassOfTraining) {
  for (const Kind kind : kinds)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Case& c : {cases[0], cases[1], cases[3]}) {
        RecurrentSpec spec = spec_of(c, kind, dtype);
        spec.cell_state = kind == Kind::lstm && c.reverse;
        Computed train(spec);
        spec.mode = Mode::infer;
        Computed infer(spec);
        EXPECT_EQ(get(infer.h.args.dst), get(train.h.args.dst));
        EXPECT_EQ(infer.h.op().memory_requirements().saved, 0u);
      }
}

TEST(RecurrentOp, ThreadsDoNotChangeBits) {
  const int threads = cpu::thread_count();
  for (const Kind kind : kinds)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      RecurrentSpec s = spec_of({33, 7, 40, 96, true, false}, kind, dtype);
      s.cell_state = kind == Kind::lstm;
      const auto first = Computed(s).results();
      cpu::set_thread_count(3);
      const auto again = Computed(s).results(), third = Computed(s).results();
      cpu::set_thread_count(threads);
      EXPECT_EQ(again, third);
      EXPECT_EQ(first[0], again[0]);
    }
}

TEST(RecurrentOp, SequencesWithoutStepsOrUnitsAreRefused) {
  expect_error(Exit::config, "rows x time steps x features", [] { OpHarness h(RecurrentSpec{{2, 3}, 4}); });
  expect_error(Exit::config, "0 units are not possible", [] { OpHarness h(RecurrentSpec{{2, 3, 4}, 0}); });
}

TEST(RecurrentReference, GradientsMatchFiniteDifferences) {
  for (const Kind kind : kinds) {
    RecurrentSpec s = spec_of({2, 3, 4, 3, true, true}, kind);
    s.cell_state = kind == Kind::lstm;
    RecurrentValues v{random_values(24, 1), random_values(s.weight_ih().count(), 2),
                      random_values(s.weight_hh().count(), 3), random_values(s.width(), 4),
                      random_values(s.width(), 5)};
    const Values dy = random_values(s.dst().count(), 6);
    const RecurrentValues g = reference::Recurrent(s, v).gradients(dy);
    const auto check = [&](Values RecurrentValues::*part, const char* what) {
      const auto f = [&](const Values& x) {
        RecurrentValues changed = v;
        changed.*part = x;
        return reference::Recurrent(s, changed).dst;
      };
      expect_gradient(f, v.*part, dy, g.*part, what);
    };
    check(&RecurrentValues::src, "src");
    check(&RecurrentValues::weight_ih, "W_ih");
    check(&RecurrentValues::weight_hh, "W_hh");
    check(&RecurrentValues::bias_ih, "b_ih");
    check(&RecurrentValues::bias_hh, "b_hh");
  }
}

}  // namespace recurrent_test
}  // namespace millrace
