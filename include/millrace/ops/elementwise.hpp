// Pointwise operations over tensors of one shape.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

// dst = kind(src[0]). Backward reads dst, or src (backward_reads_src).
struct ActivationSpec {
  Shape src;
  Activation kind = Activation::relu;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = true, keeps_dst = true;
};

// dst = src[0] + src[1]. Both gradients equal diff_dst (each is written where wanted).
struct AddSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// Inverted dropout: dst = keep ? src[0] / (1 - probability) : 0; identity in Mode::infer.
// src[1]: sample ids (N) int64. Element e of row r is kept when uniform01(word e%4 of philox(rng_key(seed, dropout) +
// layer, state->rng_step << 32 | e / 4, id[r])) >= probability: the same on every rank count, backend and layout.
struct DropoutSpec {
  Shape src;
  float probability = 0.5f;
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;  // number of the dropout in its graph
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
