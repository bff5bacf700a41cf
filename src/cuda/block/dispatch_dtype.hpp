// From a DType at run time to the element type of a kernel.
#pragma once
#include "millrace/base/dispatch_dtype.hpp"

namespace millrace::cuda {

// Calls body(T{}) with T float, bf16 or f16; Error(config) for any other type.
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, const Body& body) {
  return dispatch_compute_dtype(dtype, "CUDA", body);
}

}  // namespace millrace::cuda
