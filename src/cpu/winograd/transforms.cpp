#include "cpu/winograd/transforms.hpp"

#include "cpu/winograd/filtering.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu::winograd {
namespace {

typedef float AnyLanes __attribute__((vector_size(lanes * sizeof(float)), aligned(alignof(float)), may_alias));

#define MR_INLINE __attribute__((always_inline)) inline

// Applies a transform to the columns, then to the rows.
template <class Transform>
MR_INLINE void gather(const float* const* pixels, std::int64_t vectors, const TransformedTile& to) {
  constexpr int in = Transform::in, out = Transform::out;
  float* panel = to.data;
  for (std::int64_t v = 0, in_panel = 0; v < vectors; ++v) {
    Lanes half[out][in];
#pragma GCC unroll 6
    for (int j = 0; j < in; ++j) {
      Lanes column[in], result[out];
#pragma GCC unroll 6
      for (int i = 0; i < in; ++i) column[i] = *reinterpret_cast<const AnyLanes*>(pixels[i * in + j] + v * lanes);
      Transform::apply(result, column);
#pragma GCC unroll 6
      for (int i = 0; i < out; ++i) half[i][j] = result[i];
    }
    float* const at = panel + in_panel * lanes;
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) {
      Lanes result[out];
      Transform::apply(result, half[i]);
#pragma GCC unroll 6
      for (int j = 0; j < out; ++j) *reinterpret_cast<AnyLanes*>(at + (i * out + j) * to.step) = result[j];
    }
    if (++in_panel < to.panel) continue;
    in_panel = 0;
    panel += to.panel_step;
  }
}

// The transform of 16 channels.
template <class Transform>
MR_INLINE void scatter_vector(const float* from, std::int64_t step, Lanes (&results)[Transform::out][Transform::out]) {
  constexpr int in = Transform::in, out = Transform::out;
  Lanes half[out][in];
#pragma GCC unroll 6
  for (int j = 0; j < in; ++j) {
    Lanes column[in], result[out];
#pragma GCC unroll 6
    for (int i = 0; i < in; ++i) column[i] = *reinterpret_cast<const AnyLanes*>(from + (i * in + j) * step);
    Transform::apply(result, column);
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < out; ++i) Transform::apply(results[i], half[i]);
}

template <class Transform>
MR_INLINE void scatter(const float* from, std::int64_t step, const float* bias, std::int64_t vectors,
                       float* const* pixels) {
  constexpr int out = Transform::out;
  for (std::int64_t v = 0; v < vectors; ++v) {
    Lanes results[out][out], start = {};
    scatter_vector<Transform>(from + v * lanes, step, results);
    if (bias) start = *reinterpret_cast<const AnyLanes*>(bias + v * lanes);
#pragma GCC unroll 6
    for (int i = 0; i < out; ++i)
#pragma GCC unroll 6
      for (int j = 0; j < out; ++j)
        *reinterpret_cast<AnyLanes*>(pixels[i * out + j] + v * lanes) = results[i][j] + start;
  }
}

template <class Transform>
MR_INLINE void scatter_taps(const float* from, std::int64_t step, std::int64_t vectors, bool add, float* const* taps) {
  constexpr int out = Transform::out;
  for (std::int64_t v = 0; v < vectors; ++v) {
    Lanes results[out][out];
    scatter_vector<Transform>(from + v * lanes, step, results);
    for (int i = 0; i < out; ++i)
      for (int j = 0; j < out; ++j) {
        AnyLanes* const to = reinterpret_cast<AnyLanes*>(taps[i * out + j] + v * lanes);
        *to = add ? *to + results[i][j] : results[i][j];
      }
  }
}

#undef MR_INLINE

#define MR_TRANSFORMS(m)                                                                                          \
  MR_TARGET_CLONES void input_##m(const float* const* pixels, std::int64_t vectors, const TransformedTile& to) {  \
    gather<Filtering##m::Input>(pixels, vectors, to);                                                             \
  }                                                                                                               \
  MR_TARGET_CLONES void filter_##m(const float* const* taps, std::int64_t vectors, const TransformedTile& to) {   \
    gather<Filtering##m::Filter>(taps, vectors, to);                                                              \
  }                                                                                                               \
  MR_TARGET_CLONES void diff_##m(const float* const* pixels, std::int64_t vectors, const TransformedTile& to) {   \
    gather<Filtering##m::DiffOutput>(pixels, vectors, to);                                                        \
  }                                                                                                               \
  MR_TARGET_CLONES void output_##m(const float* from, std::int64_t step, const float* bias, std::int64_t vectors, \
                                   float* const* pixels) {                                                        \
    scatter<Filtering##m::Output>(from, step, bias, vectors, pixels);                                             \
  }                                                                                                               \
  MR_TARGET_CLONES void taps_##m(const float* from, std::int64_t step, std::int64_t vectors, bool add,            \
                                 float* const* taps) {                                                            \
    scatter_taps<Filtering##m::DiffFilter>(from, step, vectors, add, taps);                                       \
  }

MR_TRANSFORMS(2)
MR_TRANSFORMS(4)

}  // namespace

const Transforms transforms_2{Filtering2::m, Filtering2::tile, "F(2x2)", input_2, filter_2, diff_2, output_2, taps_2};
const Transforms transforms_4{Filtering4::m, Filtering4::tile, "F(4x4)", input_4, filter_4, diff_4, output_4, taps_4};

}  // namespace millrace::cpu::winograd
