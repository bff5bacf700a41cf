// Pointwise work in packs: one wide access a tensor where its pointer allows, single elements for the rest.
#pragma once
#include "cuda/runtime/half.hpp"

namespace millrace::cuda {

template <class T>
bool aligned(const T* pointer, int n) {  // may packs of n elements be read from here?
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

// body.at<m>(i) makes elements [i, i + m), m = n or 1, all of [0, count) in one launch. `wide`: every pointer of the
// body is aligned to packs of n.
template <int n, class Body>
void vectorized_for_each(const LaunchContext& context, std::int64_t count, bool wide, const Body& body) {
  const std::int64_t packs = wide ? count / n : 0;
  for_each(context, packs + (count - packs * n), VectorizedLoop<n, Body>{packs, body});
}

}  // namespace millrace::cuda
