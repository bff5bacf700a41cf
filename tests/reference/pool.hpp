// Pooling by its definition, in double, for one to three spatial dimensions.
#pragma once
#include <limits>
#include <vector>

#include "millrace/ops/pool.hpp"

namespace millrace::reference {

struct PoolResult {
  std::vector<double> dst, diff_src;  // diff_src: zeros if no dy is passed
};

inline PoolResult pool(const PoolSpec& s, const std::vector<double>& x, const std::vector<double>& dy = {}) {
  const Shape dst = s.dst();
  const std::int64_t channels = s.src[-1];
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {0, 0, 0},
               dilation[3] = {1, 1, 1};
  const int rank = s.src.spatial_rank(), shift = 3 - rank;
  for (int a = 0; a < rank; ++a) {
    in[shift + a] = kernel[shift + a] = s.src[1 + a];
    if (s.kind == PoolSpec::Kind::global) continue;
    out[shift + a] = dst[1 + a];
    kernel[shift + a] = s.window.kernel[a];
    stride[shift + a] = s.window.stride[a];
    pad[shift + a] = s.window.pad[a];
    dilation[shift + a] = s.window.dilation[a];
  }
  PoolResult result{std::vector<double>(std::size_t(dst.count())), std::vector<double>(x.size())};
  std::size_t o = 0;
  for (std::int64_t n = 0; n < s.src[0]; ++n)
    for (std::int64_t d = 0; d < out[0]; ++d)
      for (std::int64_t h = 0; h < out[1]; ++h)
        for (std::int64_t w = 0; w < out[2]; ++w)
          for (std::int64_t c = 0; c < channels; ++c, ++o) {
            double best = -std::numeric_limits<double>::infinity(), sum = 0;
            std::size_t best_at = x.size();
            const double share = 1 / double(kernel[0] * kernel[1] * kernel[2]);
            for (std::int64_t i = 0; i < kernel[0]; ++i)
              for (std::int64_t j = 0; j < kernel[1]; ++j)
                for (std::int64_t k = 0; k < kernel[2]; ++k) {
                  const std::int64_t z = d * stride[0] - pad[0] + i * dilation[0],
                                     y = h * stride[1] - pad[1] + j * dilation[1],
                                     v = w * stride[2] - pad[2] + k * dilation[2];
                  if (z < 0 || z >= in[0] || y < 0 || y >= in[1] || v < 0 || v >= in[2]) continue;
                  const std::size_t at = std::size_t((((n * in[0] + z) * in[1] + y) * in[2] + v) * channels + c);
                  sum += x[at];
                  if (x[at] > best) {
                    best = x[at];
                    best_at = at;
                  }
                  if (s.kind != PoolSpec::Kind::max && !dy.empty()) result.diff_src[at] += dy[o] * share;
                }
            if (s.kind != PoolSpec::Kind::max) {
              result.dst[o] = sum * share;
            } else if (best_at < x.size()) {
              result.dst[o] = best;
              if (!dy.empty()) result.diff_src[best_at] += dy[o];
            }
          }
  return result;
}

}  // namespace millrace::reference
