#include "cpu/winograd/transforms.hpp"

#include "cpu/common/registers.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/onednn/onednn.hpp"
#include "cpu/winograd/filtering.hpp"

namespace millrace::cpu::winograd {
namespace {

constexpr std::int64_t lanes = 16;  // channels of a channel vector, which fills one Wide register or two Narrow ones

#define MR_INLINE __attribute__((always_inline)) inline

// Applies a transform to the columns, then to the rows.
template <class Of, class Transform, class Pixel>
MR_INLINE void gather_register(const void* const* pixels, std::int64_t offset, float* to, std::int64_t step) {
  constexpr int in = Transform::in, out = Transform::out;
  using Lanes = typename Of::Register;
  Lanes half[out][in];
#pragma GCC unroll 6
  for (int j = 0; j < in; ++j) {
    Lanes column[in], result[out];
#pragma GCC unroll 6
    for (int i = 0; i < in; ++i) load_channels<Of>(column[i], static_cast<const Pixel*>(pixels[i * in + j]) + offset);
    Transform::apply(result, column);
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < out; ++i) {
    Lanes result[out];
    Transform::apply(result, half[i]);
#pragma GCC unroll 6
    for (int j = 0; j < out; ++j) channels_at<Of>(to + (i * out + j) * step) = result[j];
  }
}
template <class Of, class Transform, class Pixel>
MR_INLINE void gather(const void* const* pixels, std::int64_t vectors, const TransformedTile& to) {
  float* panel = to.data;
  for (std::int64_t v = 0, in_panel = 0; v < vectors; ++v) {
    for (std::int64_t c = 0; c < lanes; c += Of::count)
      gather_register<Of, Transform, Pixel>(pixels, v * lanes + c, panel + in_panel * lanes + c, to.step);
    if (++in_panel < to.panel) continue;
    in_panel = 0;
    panel += to.panel_step;
  }
}

// Transforms the columns. The caller transforms the rows of `half`.
template <class Of, class Transform>
MR_INLINE void scatter_columns(const float* from, std::int64_t step,
                               typename Of::Register (&half)[Transform::out][Transform::in]) {
  constexpr int in = Transform::in, out = Transform::out;
#pragma GCC unroll 6
  for (int j = 0; j < in; ++j) {
    typename Of::Register column[in], result[out];
#pragma GCC unroll 6
    for (int i = 0; i < in; ++i) column[i] = channels_at<Of>(from + (i * in + j) * step);
    Transform::apply(result, column);
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) half[i][j] = result[i];
  }
}

template <class Of, class Transform, class Pixel>
MR_INLINE void scatter(const float* from, std::int64_t step, const float* bias, std::int64_t vectors,
                       void* const* pixels) {
  constexpr int in = Transform::in, out = Transform::out;
  using Lanes = typename Of::Register;
  for (std::int64_t c = 0; c < vectors * lanes; c += Of::count) {
    Lanes half[out][in];
    scatter_columns<Of, Transform>(from + c, step, half);
    const Lanes start = bias ? channels_at<Of>(bias + c) : Lanes{};
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) {
      Lanes result[out];
      Transform::apply(result, half[i]);
#pragma GCC unroll 6
      for (int j = 0; j < out; ++j) store_channels<Of>(static_cast<Pixel*>(pixels[i * out + j]) + c, result[j] + start);
    }
  }
}

template <class Of, class Transform>
MR_INLINE void scatter_taps(const float* from, std::int64_t step, std::int64_t vectors, bool add, float* const* taps) {
  constexpr int in = Transform::in, out = Transform::out;
  using Lanes = typename Of::Register;
  for (std::int64_t c = 0; c < vectors * lanes; c += Of::count) {
    Lanes half[out][in];
    scatter_columns<Of, Transform>(from + c, step, half);
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) {
      Lanes result[out];
      Transform::apply(result, half[i]);
#pragma GCC unroll 6
      for (int j = 0; j < out; ++j) {
        typename Of::Channels& to = channels_at<Of>(taps[i * out + j] + c);
        to = add ? to + result[j] : result[j];
      }
    }
  }
}

#undef MR_INLINE

// The functions of a struct Transforms, for registers of one size.
#define MR_TRANSFORMS(Functions, Of, Target)                                                                     \
  template <class Filtering, class Pixel>                                                                        \
  struct Functions {                                                                                             \
    Target static void input(const void* const* pixels, std::int64_t vectors, const TransformedTile& to) {       \
      gather<Of, typename Filtering::Input, Pixel>(pixels, vectors, to);                                         \
    }                                                                                                            \
    Target static void filter(const void* const* taps, std::int64_t vectors, const TransformedTile& to) {        \
      gather<Of, typename Filtering::Filter, float>(taps, vectors, to);                                          \
    }                                                                                                            \
    Target static void diff_output(const void* const* pixels, std::int64_t vectors, const TransformedTile& to) { \
      gather<Of, typename Filtering::DiffOutput, Pixel>(pixels, vectors, to);                                    \
    }                                                                                                            \
    Target static void output(const float* from, std::int64_t step, const float* bias, std::int64_t vectors,     \
                              void* const* pixels) {                                                             \
      scatter<Of, typename Filtering::Output, Pixel>(from, step, bias, vectors, pixels);                         \
    }                                                                                                            \
    Target static void diff_filter(const float* from, std::int64_t step, std::int64_t vectors, bool add,         \
                                   float* const* taps) {                                                         \
      scatter_taps<Of, typename Filtering::DiffFilter>(from, step, vectors, add, taps);                          \
    }                                                                                                            \
  };

MR_TRANSFORMS(WideFunctions, Wide, MR_WIDE)
MR_TRANSFORMS(NarrowFunctions, Narrow, MR_NARROW)
#undef MR_TRANSFORMS

template <class Filtering, class F>
constexpr Transforms transforms_of(const char* name) {
  return {Filtering::m, Filtering::tile, name, F::input, F::diff_output, F::output, F::filter, F::diff_filter};
}
template <template <class, class> class Functions, class Pixel>
const Transforms& choose(std::int64_t m) {
  static constexpr Transforms two = transforms_of<Filtering2, Functions<Filtering2, Pixel>>("F(2x2)");
  static constexpr Transforms four = transforms_of<Filtering4, Functions<Filtering4, Pixel>>("F(4x4)");
  return m == 2 ? two : four;
}
template <template <class, class> class Functions>
const Transforms& choose(std::int64_t m, DType dtype) {
  return dtype == DType::bf16 ? choose<Functions, bf16>(m) : choose<Functions, float>(m);
}

}  // namespace

const Transforms& transforms(std::int64_t m, DType dtype) {
  return onednn::tile_kernels() == &matmul::wide_tiles ? choose<WideFunctions>(m, dtype)
                                                       : choose<NarrowFunctions>(m, dtype);
}

}  // namespace millrace::cpu::winograd
