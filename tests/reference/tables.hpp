// Operations with constant tables, softmax, and products of two values, by their definition, in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/ops/backend.hpp"

namespace millrace::reference {

using Numbers = std::vector<double>;

inline Numbers gather(const GatherSpec& s, const Numbers& src) {
  Numbers dst;
  for (std::int64_t outer = 0; outer < s.outer(); ++outer)
    for (const std::int32_t block : s.index.values())
      for (std::int64_t i = 0; i < s.size; ++i)
        dst.push_back(block < 0 ? 0 : src[std::size_t((outer * s.blocks() + block) * s.size + i)]);
  return dst;
}

inline double entry(const Table<float>& table, const AffineSpec& s, std::size_t i) {
  const std::int64_t of_row = std::int64_t(i) % s.src.row_count();
  return double(table[of_row / s.inner % table.size()]);
}
inline Numbers affine(const AffineSpec& s, const Numbers& src, bool adds = true) {
  Numbers dst = src;
  for (std::size_t i = 0; i < dst.size(); ++i)
    dst[i] = (entry(s.scale, s, i) == 0 ? 0 : dst[i] * entry(s.scale, s, i)) + (adds ? entry(s.offset, s, i) : 0);
  return dst;
}

inline Numbers indexed_bias(const IndexedBiasSpec& s, const Numbers& src, const Numbers& bias) {
  Numbers dst = src;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::int32_t at = s.index[std::int64_t(i) % s.positions()];
    if (at >= 0) dst[i] += bias[std::size_t(at)];
  }
  return dst;
}

inline Numbers power(const PowerSpec& s, const Numbers& src) {
  Numbers dst = src;
  for (double& v : dst) v = std::pow(v, double(s.exponent));
  return dst;
}
inline Numbers power_gradient(const PowerSpec& s, const Numbers& src, const Numbers& diff_dst) {
  Numbers out = diff_dst;
  const double e = double(s.exponent);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= src[i] == 0 && e < 1 ? 0 : e * std::pow(src[i], e - 1);
  return out;
}

inline Numbers softmax(const SoftmaxSpec& s, const Numbers& src) {
  Numbers dst = src;
  for (auto row = dst.begin(); row < dst.end(); row += s.channels()) {
    const double largest = *std::max_element(row, row + s.channels());
    double sum = 0;
    for (std::int64_t c = 0; c < s.channels(); ++c) sum += row[c] = std::exp(row[c] - largest);
    for (std::int64_t c = 0; c < s.channels(); ++c) row[c] /= sum;
  }
  return dst;
}
inline Numbers softmax_gradient(const SoftmaxSpec& s, const Numbers& dst, const Numbers& diff_dst) {
  Numbers out = dst;
  for (std::size_t begin = 0; begin < dst.size(); begin += std::size_t(s.channels())) {
    double products = 0;
    for (std::size_t i = begin; i < begin + std::size_t(s.channels()); ++i) products += dst[i] * diff_dst[i];
    for (std::size_t i = begin; i < begin + std::size_t(s.channels()); ++i) out[i] *= diff_dst[i] - products;
  }
  return out;
}

inline Numbers batched_matmul(const BatchedMatmulSpec& s, const Numbers& a, const Numbers& b) {
  Numbers dst;
  for (std::int64_t batch = 0; batch < s.batch; ++batch)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l)
          sum += a[std::size_t(batch * s.m * s.k + (s.transpose_a ? l * s.m + i : i * s.k + l))] *
                 b[std::size_t(batch * s.k * s.n + (s.transpose_b ? j * s.k + l : l * s.n + j))];
        dst.push_back(sum);
      }
  return dst;
}

struct MatmulGradients {
  Numbers a, b;
};
inline MatmulGradients batched_matmul_gradients(const BatchedMatmulSpec& s, const Numbers& a, const Numbers& b,
                                                const Numbers& diff_dst) {
  MatmulGradients out{Numbers(a.size(), 0.0), Numbers(b.size(), 0.0)};
  std::size_t at = 0;
  for (std::int64_t batch = 0; batch < s.batch; ++batch)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j, ++at)
        for (std::int64_t l = 0; l < s.k; ++l) {
          const auto of_a = std::size_t(batch * s.m * s.k + (s.transpose_a ? l * s.m + i : i * s.k + l));
          const auto of_b = std::size_t(batch * s.k * s.n + (s.transpose_b ? j * s.k + l : l * s.n + j));
          out.a[of_a] += diff_dst[at] * b[of_b];
          out.b[of_b] += diff_dst[at] * a[of_a];
        }
  return out;
}

}  // namespace millrace::reference
