#include "cpu/common/tile.hpp"

namespace millrace::cpu {

MR_TARGET_CLONES void add(float* dst, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dst[i] = a[i] + b[i];
}

MR_TARGET_CLONES void multiply(float* dst, const float* a, const float* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dst[i] = a[i] * b[i];
}

MR_TARGET_CLONES void add_products(float* __restrict sum, const float* __restrict a, const float* __restrict b,
                                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += a[i] * b[i];
}

}  // namespace millrace::cpu
