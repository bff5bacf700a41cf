// Max, average and global average pooling. src[0]: (N, spatial..., C). dst: (N, spatial'..., C); global: (N, C).
// Average pooling counts the padding, which is the default of PyTorch. Max pooling saves the position of the first
// maximum in `saved`. ceil_mode: of max pooling; the last window may reach beyond the padding, as in PyTorch.
#pragma once
#include "millrace/ops/op.hpp"
#include "millrace/ops/spatial.hpp"

namespace millrace {

struct PoolSpec {
  enum class Kind { max, average, global };
  Shape src;
  Kind kind = Kind::max;
  Window window;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  bool ceil_mode = false;

  Shape dst() const;
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
