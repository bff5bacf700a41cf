#pragma once
#include <cstdint>

#include "millrace/ops/op.hpp"

namespace millrace::cpu {

// Calls body(const T*) with the stored type of the tokens. Error(config) for any other type.
template <class Body>
void with_tokens(const Tensor& tokens, const Body& body) {
  if (tokens.dtype == DType::u8) return body(tokens.as<const std::uint8_t>());
  if (tokens.dtype == DType::u16) return body(tokens.as<const std::uint16_t>());
  if (tokens.dtype == DType::i32) return body(tokens.as<const std::int32_t>());
  fail(Exit::config, "tokens: {} values cannot be tokens. use uint8, uint16 or int32", name_of(tokens.dtype));
}

}  // namespace millrace::cpu
