// From a DType at run time to a type of the kernels.
#pragma once
#include "millrace/base/error.hpp"
#include "millrace/base/types.hpp"

namespace millrace::cuda {

// Calls body(T{}) with T float, bf16 or f16.
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(f16{});
    default:
      fail(Exit::config, "CUDA does not compute in ", name_of(dtype), ". choose fp32, bf16 or fp16");
  }
}

}  // namespace millrace::cuda
