// Embedding by its definition, in double.
#pragma once
#include <vector>

#include "millrace/ops/embedding.hpp"

namespace millrace::reference {

inline std::vector<double> embedding(const EmbeddingSpec& s, const std::vector<double>& tokens,
                                     const std::vector<double>& table) {
  std::vector<double> dst;
  for (const double token : tokens)
    for (std::int64_t c = 0; c < s.width; ++c) dst.push_back(table[std::size_t(std::int64_t(token) * s.width + c)]);
  return dst;
}

inline std::vector<double> embedding_gradient(const EmbeddingSpec& s, const std::vector<double>& tokens,
                                              const std::vector<double>& diff_dst, std::vector<double> sum) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (std::int64_t c = 0; c < s.width && std::int64_t(tokens[i]) != s.padding; ++c)
      sum[std::size_t(std::int64_t(tokens[i]) * s.width + c)] += diff_dst[i * std::size_t(s.width) + std::size_t(c)];
  return sum;
}

}  // namespace millrace::reference
