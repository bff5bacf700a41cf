// Attention that reads a text part by part.
#include <fmt/core.h>

#include <algorithm>

#include "reference/attention.hpp"
#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace cached_attention_test {

using namespace test;

struct Case {
  std::int64_t rows, window, heads, key_heads, size;
  std::vector<std::int64_t> parts;  // positions of each call
};
// One position at a time; a prompt before them; parts that fill the window; grouped queries; more keys than threads of
// a block; heads that are no multiple of a vector, and wider than a block.
const Case cases[] = {{2, 5, 2, 2, 8, {1, 1, 1, 1}},     {1, 12, 4, 2, 20, {7, 1, 1, 3}}, {3, 9, 1, 1, 3, {9}},
                      {1, 1100, 2, 1, 16, {1090, 1, 9}}, {1, 40, 6, 2, 133, {16, 16, 1}}, {1, 4, 1, 1, 700, {2, 1, 1}}};

AttentionSpec spec_of(const Case& c, std::int64_t positions, DType dtype) {
  AttentionSpec s{
      {c.rows, positions, (c.heads + 2 * c.key_heads) * c.size}, c.heads, c.key_heads, true, dtype, Mode::infer};
  s.window = c.window;
  return s;
}

// Positions [begin, begin + count) of the rows of a tensor (rows, positions, width).
Values part_of(const Values& of, std::int64_t rows, std::int64_t begin, std::int64_t count, std::int64_t width) {
  Values out;
  const std::int64_t row_size = std::int64_t(of.size()) / rows;
  for (std::int64_t row = 0; row < rows; ++row)
    out.insert(out.end(), of.begin() + row * row_size + begin * width,
               of.begin() + row * row_size + (begin + count) * width);
  return out;
}

// Results are NaN where an operation reads a position of the cache that no part has written.
void expect_reference(const Case& c, DType dtype, double tolerance) {
  std::int64_t positions = 0;
  for (const std::int64_t count : c.parts) positions += count;
  AttentionSpec whole = spec_of(c, positions, dtype);
  const Values x = OpHarness(whole).set_src(0, whole.src, dtype, random_values(whole.src.count(), 1, 2));
  whole.window = 0;
  const Values expected = reference::attention(whole, x).dst;
  const std::size_t bytes = backend().make(spec_of(c, 1, dtype))->memory_requirements().cache;
  Buffer cache(device(), MemoryKind::device, bytes);
  const std::vector<char> nans(bytes, char(0xff));
  copy_to_device(cache.data(), nans.data(), bytes);
  std::int64_t begin = 0;
  for (const std::int64_t count : c.parts) {
    const AttentionSpec s = spec_of(c, count, dtype);
    OpHarness h(s);
    ASSERT_EQ(h.op().memory_requirements().cache, bytes) << "parts share the cache";
    h.args.cache = cache.data();
    h.state.position = std::uint64_t(begin);
    h.set_src(0, s.src, dtype, part_of(x, c.rows, begin, count, s.src[-1]));
    h.want_dst(s.dst(), dtype);
    h.forward();
    expect_close(get(h.args.dst), part_of(expected, c.rows, begin, count, s.dst()[-1]), tolerance,
                 fmt::format("{} {} from {}", s.src.str(), name_of(dtype), begin));
    begin += count;
  }
}

TEST(CachedAttention, PartsMatchTheReferenceOfTheWhole) {
  constexpr Tolerance rounded{2e-6, 4e-3, 5e-4};  // of the result alone: sums are in float32
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases) expect_reference(c, dtype, rounded.of(dtype));
}

// As when a text goes on differently: what lies behind the position does not count, and is replaced.
TEST(CachedAttention, PositionsCanBeComputedAgain) {
  const Case c{1, 6, 2, 1, 8, {}};
  const AttentionSpec one = spec_of(c, 1, DType::f32);
  const std::size_t bytes = backend().make(one)->memory_requirements().cache;
  Buffer cache(device(), MemoryKind::device, bytes);
  const auto run = [&](std::int64_t position, int seed) {
    OpHarness h(one);
    h.args.cache = cache.data();
    h.state.position = std::uint64_t(position);
    h.set_src(0, one.src, DType::f32, random_values(one.src.count(), std::uint64_t(seed)));
    h.want_dst(one.dst(), DType::f32);
    h.forward();
    return get(h.args.dst);
  };
  run(0, 1);
  const Values first = run(1, 2), other = run(1, 3);
  run(2, 4);
  EXPECT_NE(first, other);
  EXPECT_EQ(run(1, 2), first);
}

TEST(CachedAttention, WhatACacheExcludesIsRefused) {
  const auto refused = [](auto change) {
    AttentionSpec s{{1, 4, 12}, 1, 1, true, DType::f32, Mode::infer};
    s.window = 4;
    change(s);
    expect_error(Exit::config, "a cache is for causal inference without documents", [&] { backend().make(s); });
  };
  refused([](AttentionSpec& s) { s.causal = false; });
  refused([](AttentionSpec& s) { s.documents = true; });
  refused([](AttentionSpec& s) { s.mode = Mode::train; });
  refused([](AttentionSpec& s) { s.window = 3; });
}

}  // namespace cached_attention_test
}  // namespace millrace
