// Concatenation and slices: copies of blocks along one axis. Reshape: the same elements with other extents.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

// dst = src[0] followed by src[1] along `axis`, in which alone they may differ. The gradients are the two parts of
// diff_dst; each is written only if it is requested.
struct ConcatSpec {
  Shape src, other;
  int axis = 1;  // at least 1
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const {
    Shape out = src;
    out[axis] += other[axis];
    return out;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// dst = the elements [begin, begin + count) of src[0] along `axis`. The gradient is zero outside of them. dtype may be
// u8 or any type of that size: elements are moved as they are stored.
struct SliceSpec {
  Shape src;
  int axis = 1;  // at least 1
  std::int64_t begin = 0, count = 1;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const {
    Shape out = src;
    out[axis] = count;
    return out;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// dst = src[0] with the extents `to`, of the same number of elements. The memory plan gives both the same memory where
// it can; the operation copies where it could not.
struct ReshapeSpec {
  Shape src, to;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return to; }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// The elements of a tensor from `axis` on, per index of the axes before it.
inline std::int64_t block_size(const Shape& shape, int axis) {
  std::int64_t size = 1;
  for (int a = axis; a < shape.rank; ++a) size *= shape[a];
  return size;
}

}  // namespace millrace
