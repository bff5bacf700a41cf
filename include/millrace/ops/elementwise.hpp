// Pointwise operations. All tensors of an operation have the same shape unless stated otherwise.
#pragma once
#include <algorithm>

#include "millrace/base/constant_table.hpp"
#include "millrace/ops/op.hpp"

namespace millrace {

// dst = kind(src[0]). Backward reads src if backward_reads_src(kind), otherwise dst.
struct ActivationSpec {
  Shape src;
  Activation kind = Activation::relu;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  bool keeps_src() const { return backward_reads_src(kind); }
  bool keeps_dst() const { return !keeps_src(); }
};

// dst = src[0] + src[1]. Both gradients equal diff_dst; each is written only if it is requested, and not if its memory
// is that of diff_dst.
struct AddSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// Gated linear unit (Dauphin et al. 2017): dst = kind(a) * b, where the channels of src[0] are a followed by b. With
// silu it is SwiGLU (Shazeer 2020).
//
//   src[0]   (..., 2 C)
//   dst      (..., C)
struct GatedSpec {
  Shape src;
  Activation kind = Activation::silu;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  std::int64_t channels() const { return src[-1] / 2; }
  std::int64_t positions() const { return src.count() / src[-1]; }
  Shape dst() const {
    Shape out = src;
    out[-1] = channels();
    return out;
  }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// dst[..., c] = src[0][..., c] * weight[0][c], with weight[0] (C) float32: the layer scale of Touvron et al. 2021.
struct ScaleSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// dst[n, ..., c] = src[0][n, ..., c] * src[1][n, c]: a factor for each row and channel, as in squeeze and excitation
// (Hu et al. 2018). The gradient of a factor is the sum over the positions of its row, in float32.
//
//   src[0], dst   (N, ..., C)
//   src[1]        (N, C)
struct ScaleBySpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  void check() const;  // Error(config) if the input is empty
  Shape factors() const { return {src[0], src[-1]}; }
  std::int64_t positions() const { return src.row_count() / src[-1]; }  // of a row
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// dst = scale * src[0] + offset, with constants that are the same for all rows. Where scale is 0, dst is offset even if
// src is not finite. Element e of a row has the entry e / inner % size() of each table; one entry is a number.
struct AffineSpec {
  Shape src;
  Table<float> scale{1.0f}, offset{0.0f};
  std::int64_t inner = 1;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  std::int64_t period() const { return std::max(scale.size(), offset.size()); }  // entries, before they repeat
  // Error(config): the tables differ in size, or do not divide a row.
  void check() const;
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// dst = src[0]^exponent. Where an exponent below 1 would make the gradient infinite, at 0, it is 0.
struct PowerSpec {
  Shape src;
  float exponent = 1;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// dst = src[0] where that is above 0, otherwise the slope times src[0] (He et al. 2015). `slopes` of them are learned:
// one for each channel, or 1 for all. 0: the slope is the constant `slope` (leaky ReLU).
//
//   src[0], dst   (N, ..., C)
//   weight[0]     (slopes) float32, if slopes > 0
//
// The gradients of the slopes are added up in parts, whose number depends on the shape (CPU) or on the shape and the
// device (CUDA), in a fixed order.
struct PreluSpec {
  Shape src;
  std::int64_t slopes = 0;
  float slope = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  Shape weight() const { return {slopes}; }
  std::int64_t channels() const { return src[-1]; }
  void check() const;  // Error(config): another number of slopes, or an empty source
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// dst[g, p] = src[0][g, p] + weight[0][index[p]]: learned values at constant places, such as the bias of the relative
// positions in an attention. Nothing is added where the index is -1.
//
//   src[0], dst   (groups, positions), with any extents; positions = index.size()
//   weight[0]     (entries) float32
struct IndexedBiasSpec {
  Shape src;
  std::int64_t entries = 1;
  Table<std::int32_t> index;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  Shape weight() const { return {entries}; }
  std::int64_t positions() const { return index.size(); }
  std::int64_t groups() const { return src.count() / positions(); }
  void check() const;  // Error(config): an index is out of range, or the positions do not divide the source
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// Inverted dropout: dst = keep ? src[0] / (1 - probability) : 0; the identity in Mode::infer.
// src[1]: sample ids, (N) int64. Element e of row r is kept if uniform01(r.v[e % 4]) >= probability, with
// r = philox(rng_key(seed, dropout) + layer, state->rng_step << 32 | e / 4, id[r]). So the result does not depend on
// the number of ranks, the backend or the layout.
// whole_rows: all elements of a row are kept or not, by the draw for element 0 (stochastic depth, Huang et al. 2016).
// whole_channels: all elements of a channel of a row, by the draw for element c (Tompson et al. 2015).
struct DropoutSpec {
  Shape src;
  float probability = 0.5f;
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;  // index of this dropout among those of the graph
  bool whole_rows = false, whole_channels = false;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
