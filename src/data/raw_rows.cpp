#include "raw_rows.hpp"

#include <algorithm>
#include <limits>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

template <class F>
auto visit(DType type, const void* data, F f) {
  switch (type) {
    case DType::u8:
      return f(static_cast<const std::uint8_t*>(data));
    case DType::i8:
      return f(static_cast<const std::int8_t*>(data));
    case DType::u16:
      return f(static_cast<const std::uint16_t*>(data));
    case DType::i16:
      return f(static_cast<const std::int16_t*>(data));
    case DType::i32:
      return f(static_cast<const std::int32_t*>(data));
    case DType::i64:
      return f(static_cast<const std::int64_t*>(data));
    case DType::f16:
      return f(static_cast<const f16*>(data));
    case DType::bf16:
      return f(static_cast<const bf16*>(data));
    case DType::f32:
      return f(static_cast<const float*>(data));
    case DType::f64:
      break;
  }
  return f(static_cast<const double*>(data));
}

template <class T>
double as_double(T v) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return double(float(v));
  else
    return double(v);
}

}  // namespace

void swap_bytes(void* data, std::size_t count, std::size_t element_bytes) {
  char* at = static_cast<char*>(data);
  for (std::size_t i = 0; i < count; ++i, at += element_bytes) std::reverse(at, at + element_bytes);
}

void labels_to_int32(const void* from, DType type, std::int64_t count, std::int32_t* to) {
  visit(type, from, [&](const auto* values) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double v = as_double(values[i]);
      if (v > std::numeric_limits<std::int32_t>::max() || v < std::numeric_limits<std::int32_t>::min())
        fail(Exit::data, "label ", v, " is no class number");
      to[i] = std::int32_t(v);
    }
  });
}

void targets_to_float(const void* from, DType type, std::int64_t count, float* to) {
  visit(type, from, [&](const auto* values) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = float(as_double(values[i]));
  });
}

double value_at(const void* from, DType type, std::int64_t i) {
  return visit(type, from, [i](const auto* values) { return as_double(values[i]); });
}

}  // namespace millrace
