// Rotary position embedding (Su et al. 2021) of the queries and keys of an attention, as Llama has it. Element i of a
// head and element i + head_size / 2 form a pair, which is rotated by the angle position * theta^(-2 i / head_size):
//
//   src[0], dst   (N, S, (heads + 2 * key_heads) * head_size) in `dtype`, as attention.hpp describes it
//
// The values, the last key_heads heads, are copied. With key_heads = 0, src holds heads that are all rotated, such as
// those of the queries alone. Backward rotates back.
//
// window: the positions begin at StepState::position, as for AttentionSpec::window.
#pragma once
#include <cmath>

#include "millrace/ops/op.hpp"

namespace millrace {

struct RotarySpec {
  Shape src;
  std::int64_t heads = 1, key_heads = 1;
  float theta = 10000;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  std::int64_t window = 0;  // positions of a text at most; 0: they begin at 0

  // Error(config): the heads do not divide the width, the size of a head is odd, or theta is not above 1
  void check() const;
  std::int64_t head_size() const { return src[-1] / (heads + 2 * key_heads); }
  std::int64_t positions() const { return src[1]; }
  Shape dst() const { return src; }
  double frequency(std::int64_t pair) const {
    return std::pow(double(theta), -2.0 * double(pair) / double(head_size()));
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
