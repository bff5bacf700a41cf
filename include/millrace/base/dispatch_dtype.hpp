// Converts a DType, which is known at run time, to a C++ type. Each function calls body(T{}), where T is the C++ type
// of the DType, and returns the result of the body. The body is a generic lambda:
//
//   dispatch_any_dtype(dtype, [&](auto zero) {
//     using T = decltype(zero);
//     ...
//   });
#pragma once
#include "millrace/base/error.hpp"
#include "millrace/base/types.hpp"

namespace millrace {

// All element types.
template <class Body>
decltype(auto) dispatch_any_dtype(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::u8:
      return body(std::uint8_t{});
    case DType::i8:
      return body(std::int8_t{});
    case DType::u16:
      return body(std::uint16_t{});
    case DType::i16:
      return body(std::int16_t{});
    case DType::i32:
      return body(std::int32_t{});
    case DType::i64:
      return body(std::int64_t{});
    case DType::f16:
      return body(f16{});
    case DType::bf16:
      return body(bf16{});
    case DType::f32:
      return body(float{});
    case DType::f64:
      break;
  }
  return body(double{});
}

// The element types that operations compute in: float, bf16 and f16. Error(config) for any other type; `device` is the
// device's name in the message ("the CPU", "CUDA").
template <class Body>
decltype(auto) dispatch_compute_dtype(DType dtype, const char* device, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(f16{});
    default:
      fail(Exit::config, "{} does not compute in {}. choose fp32, bf16 or fp16", device, name_of(dtype));
  }
}

}  // namespace millrace
