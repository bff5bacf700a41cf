// Vectorised pointwise loops: each thread handles a pack of elements with one wide access to each tensor. The remaining
// elements, and all elements of tensors that are not aligned, are handled one by one.
#pragma once
#include "cuda/block/half.hpp"

namespace millrace::cuda {

template <class T>
bool aligned(const T* pointer, int n) {  // whether packs of n elements can be read from the pointer
  return reinterpret_cast<std::uintptr_t>(pointer) % (sizeof(T) * std::size_t(n)) == 0;
}

template <int n, class Body>
struct VectorizedLoop {
  std::int64_t packs;
  Body body;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    if (i < packs)
      body.template at<n>(i * n);
    else
      body.template at<1>(packs * n + (i - packs));
  }
};

// Handles all elements of [0, count) in one launch. body.at<m>(i) handles elements [i, i + m), with m = n or 1. wide:
// all pointers in the body are aligned to packs of n elements.
template <int n, class Body>
void vectorized_for_each(const LaunchContext& context, std::int64_t count, bool wide, const Body& body) {
  const std::int64_t packs = wide ? count / n : 0;
  for_each(context, packs + (count - packs * n), VectorizedLoop<n, Body>{packs, body});
}

// Kernels with 32-bit indices have fewer, so that the next index of a thread fits in 32 bits too.
constexpr std::int64_t max_index = std::int64_t(1) << 30;

// Calls body(begin, count) for slices of [0, count) of at most `limit` elements each. All slices but the last have a
// multiple of `unit` elements. For kernels with 32-bit indices.
template <class Body>
void in_slices(std::int64_t count, std::int64_t unit, std::int64_t limit, const Body& body) {
  const std::int64_t slice = unit < limit ? limit / unit * unit : unit;
  for (std::int64_t begin = 0; begin < count; begin += slice)
    body(begin, count - begin < slice ? count - begin : slice);
}

}  // namespace millrace::cuda
