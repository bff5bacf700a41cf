// Max, average and global average pooling. src[0] (N, spatial..., C) -> dst (N, spatial'..., C); global: dst (N, C).
// Average counts the padding (PyTorch's default). Max keeps the position of the first maximum in `saved`.
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

  Shape dst() const;
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
