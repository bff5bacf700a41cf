// What the Specs of operations accept, and what follows from their tables.
#include "millrace/base/error.hpp"
#include "millrace/ops/attention_dropout.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

void AttentionSpec::check() const {
  if (src.rank != 3 || heads < 1 || key_heads < 1 || heads % key_heads != 0 || src[-1] % (heads + 2 * key_heads) != 0)
    fail(Exit::config,
         "attention: an input of {} does not hold {} heads of queries and {} each of keys and values. it must be "
         "rows x positions x width, the heads of queries a multiple of those of keys, and their sum must divide the "
         "width",
         src.str(), heads, key_heads);
  if (!(dropout >= 0 && dropout < 1))
    fail(Exit::config, "attention: dropout {:g} is not in [0, 1). choose a probability below 1", dropout);
  if (dropout > 0 && !AttentionDropout::can_count(positions()))
    fail(Exit::config, "attention: dropout is for at most 131072 positions, not {}. set it to 0", positions());
  if (documents && !causal) fail(Exit::config, "attention: documents need causal attention. add `causal`");
  if (window > 0 && (!causal || documents || mode != Mode::infer || positions() > window))
    fail(Exit::config,
         "attention: a cache is for causal inference without documents, on at most as many positions as it holds");
  if (first_query < 0 || queries < 0 || first_query + queries > positions() || (queries > 0 && window > 0) ||
      (queries == 0 && first_query > 0))
    fail(Exit::config, "attention: {} positions from {} on cannot ask. an input of {} has {}", queries, first_query,
         src.str(), positions());
}

void RotarySpec::check() const {
  if (key_heads > 0) AttentionSpec{src, heads, key_heads, false, dtype, mode}.check();
  if (src.rank != 3 || heads < 1 || key_heads < 0 || src[-1] % (heads + 2 * key_heads) != 0)
    fail(Exit::config, "rotary positions: an input of {} does not hold {} heads", src.str(), heads);
  if (head_size() % 2 != 0 || !(theta > 1))
    fail(Exit::config,
         "rotary positions: heads of {} values cannot be rotated with theta {:g}. their size must be even, and theta "
         "above 1",
         head_size(), theta);
}

void GroupNormSpec::check() const {
  if (src.rank < 2 || src.count() == 0 || groups < 1 || src[-1] % groups != 0)
    fail(Exit::config, "group norm: {} groups do not divide the channels of an input of {}. choose a divisor", groups,
         src.str());
}

void ScaleBySpec::check() const {
  if (src.rank < 2 || src.count() == 0) fail(Exit::config, "scale by: input {} has no channels", src.str());
}

namespace {

void check_index(const char* op, const Table<std::int32_t>& index, std::int64_t end) {
  for (std::int64_t i = 0; i < index.size(); ++i)
    if (index[i] < -1 || index[i] >= end) fail(Exit::config, "{}: index {} is not below {}, nor -1", op, index[i], end);
}

}  // namespace

void GatherSpec::check() const {
  const std::int64_t block = index.size() * size;
  if (size < 1 || index.size() == 0 || src.count() == 0 || to.count() % block != 0 ||
      src.count() % (outer() * size) != 0)
    fail(Exit::config, "gather: {} blocks of {} values do not fit {} and {}", index.size(), size, src.str(), to.str());
  check_index("gather", index, blocks());
}

void AffineSpec::check() const {
  const auto fits = [&](std::int64_t count) { return count == 1 || count == period(); };
  if (!fits(scale.size()) || !fits(offset.size()) || inner < 1 || src.count() == 0 ||
      (period() > 1 && src.row_count() % (inner * period()) != 0))
    fail(Exit::config, "affine: tables of {} and {} values, {} times each, do not divide rows of {}", scale.size(),
         offset.size(), inner, src.str());
}

void PreluSpec::check() const {
  if (src.rank < 2 || src.count() == 0) fail(Exit::config, "prelu: input {} has no channels", src.str());
  if (slopes != 0 && slopes != 1 && slopes != channels())
    fail(Exit::config, "prelu: {} slopes for an input of {}. one, or one for each channel, is possible", slopes,
         src.str());
}

void IndexedBiasSpec::check() const {
  if (positions() == 0 || src.count() % positions() != 0)
    fail(Exit::config, "indexed bias: {} positions do not divide {}", positions(), src.str());
  check_index("indexed bias", index, entries);
}

// dA = dst B^T and dB = A^T dst; of transposed sources, the transposes.
BatchedMatmulSpec BatchedMatmulSpec::of_a() const {
  if (transpose_a) return {batch, k, m, n, transpose_b, true, {batch, k, m}, dtype, mode};  // B dst^T
  return {batch, m, k, n, false, !transpose_b, {batch, m, k}, dtype, mode};
}
BatchedMatmulSpec BatchedMatmulSpec::of_b() const {
  if (transpose_b) return {batch, n, k, m, true, transpose_a, {batch, n, k}, dtype, mode};  // dst^T A
  return {batch, k, n, m, !transpose_a, false, {batch, k, n}, dtype, mode};
}

Places::Places(const Table<std::int32_t>& table, std::int64_t values) : begin(std::size_t(values) + 1) {
  for (const std::int32_t v : table.values())
    if (v >= 0) ++begin[std::size_t(v) + 1];
  for (std::size_t v = 0; v < std::size_t(values); ++v) begin[v + 1] += begin[v];
  places.resize(std::size_t(begin.back()));
  std::vector<std::int32_t> next(begin.begin(), begin.end() - 1);
  for (std::int64_t i = 0; i < table.size(); ++i)
    if (table[i] >= 0) places[std::size_t(next[std::size_t(table[i])]++)] = std::int32_t(i);
}

}  // namespace millrace
