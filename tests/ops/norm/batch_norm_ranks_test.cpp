// Synchronised batch norm: ranks with unequal rows, one after the other, equal one norm of all rows.
#include <fmt/core.h>

#include <deque>
#include <map>

#include "millrace/ops/rank_exchange.hpp"
#include "reference/batch_norm.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace batch_norm_ranks_test {

using namespace test;

// Keeps what each rank contributes. The ranks run one after the other, so the first call of each only contributes.
struct RecordedExchange : RankExchange {
  const int count_of_ranks;
  int current = 0;
  std::map<std::pair<Pass, int>, std::vector<double>> parts;  // a rank without rows belongs to the forward pass
  Buffer memory{device(), MemoryKind::device, 1 << 20};
  Pass of_empty = Pass::forward;
  explicit RecordedExchange(int n) : count_of_ranks(n) {}
  int ranks() const override { return count_of_ranks; }
  int rank() const override { return current; }
  double* values() override { return memory.as<double>(); }
  void all_gather(std::int64_t count, Pass pass) override {
    if (pass == Pass::without_rows) pass = of_empty;
    const std::size_t bytes = std::size_t(count) * sizeof(double);
    device().synchronize();
    auto& mine = parts[{pass, current}];
    mine.resize(std::size_t(count));
    copy_to_host(mine.data(), own(count), bytes);
    for (int r = 0; r < count_of_ranks; ++r)
      if (const auto part = parts.find({pass, r}); part != parts.end())
        copy_to_device(values() + r * count, part->second.data(), bytes);
  }
};

Values rows_of(const Values& all, std::int64_t row_count, std::int64_t first, std::int64_t end) {
  const std::int64_t row = std::int64_t(all.size()) / row_count;
  return {all.begin() + first * row, all.begin() + end * row};
}

struct Inputs {
  Values x, r, gamma, beta, dy;
};

Inputs inputs_of(const BatchNormSpec& s) {
  const std::int64_t n = s.src.count(), channels = s.src[-1];
  Values x = random_values(n, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += 3 + double(i) / double(n);  // the mean differs from rank to rank
  return {x, s.residual ? random_values(n, 2) : Values(), random_values(channels, 3), random_values(channels, 4),
          random_values(n, 5)};
}

// One rank: rows [first, end) of the inputs.
struct Rank {
  OpHarness h;
  Inputs rounded;
  Rank(BatchNormSpec s, const Inputs& in, std::int64_t first, std::int64_t end) : h(with_rows(s, end - first)) {
    const std::int64_t all = s.src[0], channels = s.src[-1];
    s = with_rows(s, end - first);
    rounded.x = h.set_src(0, s.src, s.dtype, rows_of(in.x, all, first, end));
    if (s.residual) {
      rounded.r = h.set_src(1, s.src, s.dtype, rows_of(in.r, all, first, end));
      h.want_diff_src(1, s.src, s.dtype);
    }
    rounded.gamma = h.set_weight(0, {channels}, DType::f32, in.gamma);
    rounded.beta = h.set_weight(1, {channels}, DType::f32, in.beta);
    h.want_dst(s.src, s.dtype);
    h.want_diff_src(0, s.src, s.dtype);
    rounded.dy = h.set_diff_dst(s.src, s.dtype, rows_of(in.dy, all, first, end));
    h.want_diff_weight(0, {channels}, GradMode::write);
    h.want_diff_weight(1, {channels}, GradMode::write);
    h.want_stats({2, channels}, GradMode::write);
    h.state.row_weight = 0.125f;
  }
  static BatchNormSpec with_rows(BatchNormSpec s, std::int64_t rows) {
    s.src[0] = rows;
    return s;
  }
};

void append(Values& to, const Values& more) { to.insert(to.end(), more.begin(), more.end()); }
void add(Values& to, const Values& more) {
  to.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) to[i] += more[i];
}

// As in batch_norm_test.cpp.
constexpr Tolerance tolerance{4e-6, 5e-3, 6e-4};
constexpr double sum_tolerance = 1e-5;

void expect_equals_one_norm(const BatchNormSpec& s) {
  const std::int64_t bounds[] = {0, 3, 4, 4, 7};  // the third rank has no rows
  const Inputs in = inputs_of(s);
  RecordedExchange exchange(4);
  std::deque<Rank> ranks;
  for (const int r : {0, 1, 3}) ranks.emplace_back(s, in, bounds[r], bounds[r + 1]);
  Rank empty(s, in, 0, 1);  // its rows are not used
  empty.h.args.without_rows = true;
  const auto each = [&](const auto& call) {
    for (const int r : {0, 1, 2, 3}) {
      OpHarness& h = r == 2 ? empty.h : ranks[r == 3 ? 2 : std::size_t(r)].h;
      h.args.ranks = &exchange;
      exchange.current = r;
      call(h);
    }
  };
  for (int turn = 0; turn < 2; ++turn) each([](OpHarness& h) { h.forward(); });
  exchange.of_empty = RankExchange::Pass::backward;
  for (int turn = 0; turn < 2; ++turn) each([](OpHarness& h) { h.backward(); });
  for (const auto& [key, part] : exchange.parts)
    EXPECT_TRUE(key.second != 2 || part == std::vector<double>(part.size())) << "of the rank without rows";

  Inputs all;
  Values dst, dx, dr, diff_gamma, diff_beta, stats;
  for (Rank& rank : ranks) {
    append(all.x, rank.rounded.x);
    append(all.r, rank.rounded.r);
    append(all.dy, rank.rounded.dy);
    append(dst, get(rank.h.args.dst));
    append(dx, get(rank.h.args.diff_src[0]));
    if (s.residual) append(dr, get(rank.h.args.diff_src[1]));
    add(diff_gamma, get(rank.h.args.diff_weight[0]));
    add(diff_beta, get(rank.h.args.diff_weight[1]));
    add(stats, get(rank.h.args.stats));
  }
  const auto& [gamma, beta] = std::tie(ranks[0].rounded.gamma, ranks[0].rounded.beta);
  const auto f = reference::batch_norm_forward(s, all.x, all.r, gamma, beta);
  const auto g = reference::batch_norm_backward(s, all.x, all.r, gamma, beta, all.dy);
  Values expected_stats = f.mean;
  append(expected_stats, f.unbiased);
  for (double& v : expected_stats) v *= double(s.src[0]) * 0.125;
  expect_close(dst, f.dst, tolerance.of(s.dtype), "dst");
  expect_close(dx, g.src, tolerance.of(s.dtype), "diff_src");
  if (s.residual) expect_close(dr, g.residual, 0, "diff_residual");
  expect_close(diff_gamma, g.gamma, sum_tolerance, "diff_gamma");
  expect_close(diff_beta, g.beta, sum_tolerance, "diff_beta");
  expect_close(stats, expected_stats, 1e-6, "stats");
}

BatchNormSpec norm(Shape src, bool residual, Activation activation, DType dtype) {
  BatchNormSpec s;
  s.src = src;
  s.residual = residual;
  s.activation = activation;
  s.dtype = dtype;
  s.synchronised = true;
  return s;
}

TEST(BatchNormRanks, UnequalRowsEqualOneNormOfAllRows) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& src : {Shape{7, 5, 3, 3}, Shape{7, 6, 5, 64}, Shape{7, 2, 3, 600}, Shape{7, 33}}) {
      SCOPED_TRACE(fmt::format("{} {}", src.str(), name_of(dtype)));
      expect_equals_one_norm(norm(src, false, Activation::none, dtype));
      expect_equals_one_norm(norm(src, true, Activation::relu, dtype));
    }
}

TEST(BatchNormRanks, OneRankHasTheBitsOfAPlainNorm) {
  const BatchNormSpec s = norm({5, 4, 3, 43}, true, Activation::relu, DType::f32);
  const Inputs in = inputs_of(s);
  std::vector<std::vector<Values>> results;
  for (const int ranks : {0, 1, 2}) {  // of two ranks, one without rows
    RecordedExchange exchange(std::max(1, ranks));
    Rank rank(s, in, 0, 5);
    if (ranks > 0) rank.h.args.ranks = &exchange;
    rank.h.forward();
    rank.h.backward();
    const OpArgs& a = rank.h.args;
    auto& out = results.emplace_back();
    for (const Tensor& t : {a.dst, a.diff_src[0], a.diff_src[1], a.diff_weight[0], a.diff_weight[1], a.stats})
      out.push_back(get(t));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace batch_norm_ranks_test
}  // namespace millrace
