#include "cpu/tokens/row_sums.hpp"

#include "cpu/common/registers.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu {
namespace row_kernels {

#define MR_INLINE __attribute__((always_inline)) inline

constexpr std::int64_t lane_count = row_sum_lanes;

// 16 numbers, in one register or in two.
template <class Of>
struct Lanes {
  static constexpr int registers = int(lane_count) / Of::count;
  typename Of::Register v[registers];
};

template <class Of>
MR_INLINE float sum_of(const Lanes<Of>& lanes) {
  float all[lane_count];
#pragma GCC unroll 2
  for (int r = 0; r < Lanes<Of>::registers; ++r) channels_at<Of>(all + r * Of::count) = lanes.v[r];
  const Narrow::Channels s = channels_at<Narrow>(all) + channels_at<Narrow>(all + Narrow::count);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

template <class Of>
MR_INLINE float sum(const float* x, std::int64_t count) {
  Lanes<Of> lanes = {};
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
#pragma GCC unroll 2
    for (int r = 0; r < Lanes<Of>::registers; ++r) lanes.v[r] += channels_at<Of>(x + i + r * Of::count);
  float result = sum_of<Of>(lanes);
  for (; i < count; ++i) result += x[i];
  return result;
}

template <class Of>
MR_INLINE float squares(const float* x, float shift, std::int64_t count) {
  Lanes<Of> lanes = {};
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
#pragma GCC unroll 2
    for (int r = 0; r < Lanes<Of>::registers; ++r) {
      const typename Of::Register distance = channels_at<Of>(x + i + r * Of::count) - shift;
      lanes.v[r] += distance * distance;
    }
  float result = sum_of<Of>(lanes);
  for (; i < count; ++i) result += (x[i] - shift) * (x[i] - shift);
  return result;
}

template <class Of>
MR_INLINE float dot(const float* a, const float* b, std::int64_t count) {
  Lanes<Of> lanes = {};
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
#pragma GCC unroll 2
    for (int r = 0; r < Lanes<Of>::registers; ++r)
      lanes.v[r] += channels_at<Of>(a + i + r * Of::count) * channels_at<Of>(b + i + r * Of::count);
  float result = sum_of<Of>(lanes);
  for (; i < count; ++i) result += a[i] * b[i];
  return result;
}

template <class Of>
MR_INLINE NormProducts norm_products(const float* dy, const float* x, const float* gamma, float mean, float inverse,
                                     std::int64_t count) {
  Lanes<Of> of_g = {}, of_gx = {};
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
#pragma GCC unroll 2
    for (int r = 0; r < Lanes<Of>::registers; ++r) {
      const typename Of::Register g =
          channels_at<Of>(dy + i + r * Of::count) * channels_at<Of>(gamma + i + r * Of::count);
      of_g.v[r] += g;
      of_gx.v[r] += g * ((channels_at<Of>(x + i + r * Of::count) - mean) * inverse);
    }
  NormProducts result{sum_of<Of>(of_g), sum_of<Of>(of_gx)};
  for (; i < count; ++i) {
    const float g = dy[i] * gamma[i];
    result.g += g;
    result.gx += g * ((x[i] - mean) * inverse);
  }
  return result;
}

template <class Of>
MR_INLINE float largest(const float* x, std::int64_t count) {
  Lanes<Of> most;
#pragma GCC unroll 2
  for (int r = 0; r < Lanes<Of>::registers; ++r) most.v[r] = channels_at<Of>(x + r * Of::count);
  for (std::int64_t i = lane_count; i < count; i += lane_count)
#pragma GCC unroll 2
    for (int r = 0; r < Lanes<Of>::registers; ++r) {
      const typename Of::Register next = channels_at<Of>(x + i + r * Of::count);
      most.v[r] = next > most.v[r] ? next : most.v[r];
    }
  float all[lane_count];
#pragma GCC unroll 2
  for (int r = 0; r < Lanes<Of>::registers; ++r) channels_at<Of>(all + r * Of::count) = most.v[r];
  float result = all[0];
  for (int l = 1; l < lane_count; ++l) result = all[l] > result ? all[l] : result;
  return result;
}

#undef MR_INLINE

}  // namespace row_kernels

namespace {

#define MR_ROW_SUMS(Functions, Of, Target)                                                                            \
  struct Functions {                                                                                                  \
    Target static float sum(const float* x, std::int64_t n) { return row_kernels::sum<Of>(x, n); }                    \
    Target static float squares(const float* x, float shift, std::int64_t n) {                                        \
      return row_kernels::squares<Of>(x, shift, n);                                                                   \
    }                                                                                                                 \
    Target static float dot(const float* a, const float* b, std::int64_t n) { return row_kernels::dot<Of>(a, b, n); } \
    Target static NormProducts norm_products(const float* dy, const float* x, const float* gamma, float mean,         \
                                             float inverse, std::int64_t n) {                                         \
      return row_kernels::norm_products<Of>(dy, x, gamma, mean, inverse, n);                                          \
    }                                                                                                                 \
    Target static float largest(const float* x, std::int64_t n) { return row_kernels::largest<Of>(x, n); }            \
    static constexpr RowSums all{sum, squares, dot, norm_products, largest};                                          \
  };

MR_ROW_SUMS(ForWide, Wide, MR_WIDE)
MR_ROW_SUMS(ForNarrow, Narrow, MR_NARROW)
MR_ROW_SUMS(ForAny, Narrow, )  // correct on every processor, but slow
#undef MR_ROW_SUMS

}  // namespace

const RowSums& row_sums() {
  const matmul::TileKernels* const tiles = onednn::tile_kernels();
  if (tiles == &matmul::wide_tiles) return ForWide::all;
  return tiles == &matmul::narrow_tiles ? ForNarrow::all : ForAny::all;
}

}  // namespace millrace::cpu
