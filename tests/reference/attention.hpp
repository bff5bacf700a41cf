// Attention by its definition, in double.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/attention.hpp"

namespace millrace::reference {

// dst, and diff_src if diff_dst is not empty.
struct Attention {
  std::vector<double> dst, diff_src;
};

inline Attention attention(const AttentionSpec& s, const std::vector<double>& src,
                           const std::vector<double>& diff_dst = {}) {
  const auto positions = std::size_t(s.positions()), size = std::size_t(s.head_size()), width = std::size_t(s.src[-1]),
             heads = std::size_t(s.heads), key_heads = std::size_t(s.key_heads);
  Attention out{std::vector<double>(std::size_t(s.dst().count())), std::vector<double>(src.size())};
  for (std::size_t n = 0; n < std::size_t(s.src[0]); ++n)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t q = 0; q < positions; ++q) {
        const std::size_t keys = s.causal ? q + 1 : positions, key_head = heads + h / (heads / key_heads);
        const auto at = [&](std::size_t position, std::size_t head) {
          return (n * positions + position) * width + head * size;
        };
        const std::size_t query = at(q, h), to = (n * positions + q) * heads * size + h * size;
        const double scale = 1 / std::sqrt(double(size));
        std::vector<double> p(keys);
        double most = -1e300, sum = 0, delta = 0;
        for (std::size_t k = 0; k < keys; ++k) {
          for (std::size_t d = 0; d < size; ++d) p[k] += scale * src[query + d] * src[at(k, key_head) + d];
          most = std::max(most, p[k]);
        }
        for (double& v : p) sum += v = std::exp(v - most);
        for (std::size_t k = 0; k < keys; ++k) {
          p[k] /= sum;
          for (std::size_t d = 0; d < size; ++d) out.dst[to + d] += p[k] * src[at(k, key_head + key_heads) + d];
        }
        if (diff_dst.empty()) continue;
        std::vector<double> diff(keys);
        for (std::size_t k = 0; k < keys; ++k) {
          for (std::size_t d = 0; d < size; ++d) {
            diff[k] += diff_dst[to + d] * src[at(k, key_head + key_heads) + d];
            out.diff_src[at(k, key_head + key_heads) + d] += p[k] * diff_dst[to + d];
          }
          delta += p[k] * diff[k];
        }
        for (std::size_t k = 0; k < keys; ++k)
          for (std::size_t d = 0; d < size; ++d) {
            const double score = scale * p[k] * (diff[k] - delta);
            out.diff_src[query + d] += score * src[at(k, key_head) + d];
            out.diff_src[at(k, key_head) + d] += score * src[query + d];
          }
      }
  return out;
}

}  // namespace millrace::reference
