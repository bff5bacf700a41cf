// Attention by its definition, in double.
#pragma once
#include <cmath>
#include <functional>
#include <vector>

#include "millrace/ops/attention.hpp"
#include "millrace/ops/attention_dropout.hpp"
#include "millrace/ops/documents.hpp"

namespace millrace::reference {

// dst, and diff_src if diff_dst is not empty.
struct Attention {
  std::vector<double> dst, diff_src;
};

// What an attention reads beside the queries, keys and values.
struct AttentionExtras {
  std::vector<double> starts;                                    // with documents
  std::function<bool(int row, int head, int query, int)> keeps;  // with dropout: of a probability
};

// The dropout as attention_dropout.hpp defines it.
inline auto dropout_of_attention(const AttentionSpec& s, const std::vector<double>& ids, std::uint64_t step) {
  return [=, dropout = AttentionDropout(s.seed, s.layer, s.positions(), s.dropout)](int row, int head, int query,
                                                                                    int key) {
    return dropout.keeps(std::uint64_t(std::int64_t(ids[std::size_t(row)])), step, head, query, key);
  };
}

inline std::vector<double> documents(const DocumentsSpec& s, const std::vector<double>& tokens) {
  std::vector<double> starts(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t p = i % std::size_t(s.positions());
    const bool begins = p > 0 && std::int64_t(tokens[i - 1]) == s.separator;
    starts[i] = p == 0 ? 0 : begins ? double(p) : starts[i - 1];
  }
  return starts;
}

inline Attention attention(const AttentionSpec& s, const std::vector<double>& src,
                           const std::vector<double>& diff_dst = {}, const AttentionExtras& extras = {}) {
  const auto positions = std::size_t(s.positions()), size = std::size_t(s.head_size()), width = std::size_t(s.src[-1]),
             heads = std::size_t(s.heads), key_heads = std::size_t(s.key_heads);
  Attention out{std::vector<double>(std::size_t(s.dst().count())), std::vector<double>(src.size())};
  for (std::size_t n = 0; n < std::size_t(s.src[0]); ++n)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t asking = 0; asking < std::size_t(s.asking()); ++asking) {
        const std::size_t q = std::size_t(s.first_query) + asking;
        const std::size_t keys = s.causal ? q + 1 : positions, key_head = heads + h / (heads / key_heads);
        const auto at = [&](std::size_t position, std::size_t head) {
          return (n * positions + position) * width + head * size;
        };
        const std::size_t query = at(q, h), to = (n * std::size_t(s.asking()) + asking) * heads * size + h * size;
        const double scale = 1 / std::sqrt(double(size));
        const std::size_t first = s.documents ? std::size_t(extras.starts[n * positions + q]) : 0;
        const auto factor = [&](std::size_t k) {
          if (!s.drops()) return 1.0;
          return extras.keeps(int(n), int(h), int(q), int(k)) ? 1 / (1 - double(s.dropout)) : 0.0;
        };
        std::vector<double> p(keys);
        double most = -1e300, sum = 0, delta = 0;
        for (std::size_t k = first; k < keys; ++k) {
          for (std::size_t d = 0; d < size; ++d) p[k] += scale * src[query + d] * src[at(k, key_head) + d];
          most = std::max(most, p[k]);
        }
        for (std::size_t k = first; k < keys; ++k) sum += p[k] = std::exp(p[k] - most);
        for (std::size_t k = first; k < keys; ++k) {
          p[k] /= sum;
          for (std::size_t d = 0; d < size; ++d)
            out.dst[to + d] += factor(k) * p[k] * src[at(k, key_head + key_heads) + d];
        }
        if (diff_dst.empty()) continue;
        std::vector<double> diff(keys);
        for (std::size_t k = first; k < keys; ++k) {
          const double kept = factor(k);
          for (std::size_t d = 0; d < size; ++d) {
            diff[k] += kept * diff_dst[to + d] * src[at(k, key_head + key_heads) + d];
            out.diff_src[at(k, key_head + key_heads) + d] += kept * p[k] * diff_dst[to + d];
          }
          delta += p[k] * diff[k];
        }
        for (std::size_t k = first; k < keys; ++k)
          for (std::size_t d = 0; d < size; ++d) {
            const double score = scale * p[k] * (diff[k] - delta);
            out.diff_src[query + d] += score * src[at(k, key_head) + d];
            out.diff_src[at(k, key_head) + d] += score * src[query + d];
          }
      }
  return out;
}

}  // namespace millrace::reference
