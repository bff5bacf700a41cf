// Concatenation and slices: copies of blocks along one axis. Gather: copies of blocks in any order. Reshape: the same
// elements with other extents.
#pragma once
#include "millrace/base/constant_table.hpp"
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

// Blocks of src[0] in another order, which is the same for all rows: another order of axes, elements of constant
// indices, padding with zeros, copies. dst[o, b] = src[0][o, index[b]], or zeros where the index is -1.
//
//   src[0]   (outer, blocks(), size), with the extents `src`
//   dst      (outer, index.size(), size), with the extents `to`
//
// The gradient of a block is the sum of the gradients of its copies, in float32 and in their order; zero without one.
struct GatherSpec {
  Shape src, to;
  std::int64_t size = 1;
  Table<std::int32_t> index;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return to; }
  std::int64_t outer() const { return to.count() / (index.size() * size); }
  std::int64_t blocks() const { return src.count() / (outer() * size); }
  void check() const;  // Error(config): an index is out of range, or the extents do not fit
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
