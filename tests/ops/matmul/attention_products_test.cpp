// The products of attention by oneDNN against those with tiles, and which of them a processor uses.
#include "cpu/tokens/attention_products.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <random>
#include <vector>

#include "cpu/onednn/onednn.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace attention_products_test {

using cpu::attention::HeadProducts, cpu::attention::ScoreBlock;

AttentionSpec attention(std::int64_t positions, std::int64_t size, DType dtype) {
  return {{1, positions, 3 * size}, 1, 1, true, dtype, Mode::train};
}

TEST(AttentionProducts, AreNamedByTheOperation) {
  for (const std::int64_t size : {16, 20, 5}) {
    const std::string name = test::backend().make(attention(70, size, DType::bf16))->implementation();
    if (cpu::onednn::has_pairs() && size % 2 == 0)
      EXPECT_TRUE(name.ends_with("tiles:avx512_bf16")) << name;
    else
      EXPECT_EQ(name.find("tiles:avx512_bf16"), std::string::npos) << name;
  }
  if (!cpu::onednn::tile_kernels()) return;
  const std::string name = test::backend().make(attention(70, 16, DType::f32))->implementation();
  EXPECT_TRUE(name.ends_with(cpu::onednn::tile_kernels()->name)) << name;
}

constexpr std::int64_t queries = 7, keys = 10, first_query = 5, positions = 12, size = 6;

// Row by row: (rows, width), every row with a distance of `stride` elements.
struct Rows {
  const std::vector<float>& values;
  std::int64_t stride, begin = 0;
  double at(std::int64_t row, std::int64_t i) const { return values[std::size_t(begin + row * stride + i)]; }
};

// What the operation gives to the products of a block: Q, K and V of all positions beside each other, dO, and P and dS
// in rows of the block, which are 0 where a query does not attend to a key. All values are those of bf16.
struct Operands {
  std::int64_t width = ScoreBlock::row_width(keys);
  ScoreBlock block{first_query, queries, 0, keys, true};
  std::vector<float> src = random(positions * 3 * size, 1), diff = random(queries * size, 2),
                     factors = random(queries * width, 3);

  Operands() {
    for (std::int64_t q = 0; q < queries; ++q)
      for (std::int64_t k = block.visible(q); k < width; ++k) factors[std::size_t(q * width + k)] = 0;
  }
  static std::vector<float> random(std::int64_t count, unsigned seed) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& v : out) v = float(bf16(values(engine)));
    return out;
  }
  Rows query() const { return {src, 3 * size, first_query * 3 * size}; }
  Rows key() const { return {src, 3 * size, size}; }
  Rows value() const { return {src, 3 * size, 2 * size}; }
  Rows of_diff() const { return {diff, size}; }
};

std::vector<bf16> narrowed(const std::vector<float>& values) {
  std::vector<bf16> out;
  for (const float v : values) out.push_back(bf16(v));
  return out;
}

// The six products in the order of HeadProducts.
std::vector<std::vector<float>> results_of(HeadProducts& products, const Operands& o) {
  const std::vector<bf16> src = narrowed(o.src), diff = narrowed(o.diff), factors = narrowed(o.factors);
  const std::unique_ptr<std::byte, void (*)(std::byte*)> scratch(
      new (std::align_val_t{64}) std::byte[products.scratch_bytes() + 64],
      [](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); });
  products.begin_keys(src.data() + size, src.data() + 2 * size, scratch.get());
  products.begin_queries(queries, src.data() + first_query * 3 * size, diff.data());
  const auto block = std::size_t(queries * o.width), of_queries = std::size_t(queries * size),
             of_keys = std::size_t(keys * size);
  std::vector<std::vector<float>> out;
  const auto result = [&](std::size_t count) { return out.emplace_back(count, 0.0f).data(); };
  products.scores(o.block, result(block));
  products.weighted(o.block, factors.data(), result(of_queries));
  products.diff_probabilities(o.block, result(block));
  products.diff_value(o.block, factors.data(), result(of_keys));
  products.diff_query(o.block, factors.data(), result(of_queries));
  products.diff_key(o.block, factors.data(), result(of_keys));
  return out;
}

// to(query, key) = the sum over the head, for the keys that the query attends to
void expect_scores(const Operands& o, const std::vector<float>& to, const Rows& a, const Rows& b) {
  for (std::int64_t q = 0; q < queries; ++q)
    for (std::int64_t k = 0; k < o.block.visible(q); ++k) {
      double sum = 0;
      for (std::int64_t i = 0; i < size; ++i) sum += a.at(q, i) * b.at(k, i);
      EXPECT_NEAR(to[std::size_t(q * o.width + k)], sum, 1e-5) << q << ", " << k;
    }
}
void expect_of_queries(const Operands& o, const std::vector<float>& to, const Rows& of_keys) {
  for (std::int64_t q = 0; q < queries; ++q)
    for (std::int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < keys; ++k) sum += o.factors[std::size_t(q * o.width + k)] * of_keys.at(k, i);
      EXPECT_NEAR(to[std::size_t(q * size + i)], sum, 1e-5) << q << ", " << i;
    }
}
void expect_of_keys(const Operands& o, const std::vector<float>& to, const Rows& of_queries) {
  for (std::int64_t k = 0; k < keys; ++k)
    for (std::int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (std::int64_t q = 0; q < queries; ++q) sum += o.factors[std::size_t(q * o.width + k)] * of_queries.at(q, i);
      EXPECT_NEAR(to[std::size_t(k * size + i)], sum, 1e-5) << k << ", " << i;
    }
}

// Both for the same even size, so that neither goes untested because a processor prefers the other.
TEST(AttentionProducts, OfOnednnAndOfTilesMatchSumsInDouble) {
  if (!cpu::onednn::has_bf16()) GTEST_SKIP() << "this processor has no bf16";
  const AttentionSpec s = attention(positions, size, DType::bf16);
  const Operands o;
  for (auto* make : {cpu::attention::make_onednn_products, cpu::attention::make_pair_products}) {
    const auto products = make(s, queries, keys);
    if (!products) continue;  // no AVX-512 with bf16
    SCOPED_TRACE(products->name());
    const auto results = results_of(*products, o);
    expect_scores(o, results[0], o.query(), o.key());
    expect_of_queries(o, results[1], o.value());
    expect_scores(o, results[2], o.of_diff(), o.value());
    expect_of_keys(o, results[3], o.of_diff());
    expect_of_queries(o, results[4], o.key());
    expect_of_keys(o, results[5], o.query());
  }
}

}  // namespace attention_products_test
}  // namespace millrace
