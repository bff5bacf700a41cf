#include "data/decode/convert_values.hpp"

#include <cstring>
#include <limits>
#include <type_traits>

#include "millrace/base/dispatch_dtype.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

template <class F>
auto visit(DType type, const void* data, F f) {
  return dispatch_any_dtype(type, [&](auto zero) { return f(static_cast<const decltype(zero)*>(data)); });
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
  const auto all = [&](auto sized, auto swapped) {
    for (std::size_t i = 0; i < count; ++i, at += sizeof sized) {
      std::memcpy(&sized, at, sizeof sized);
      sized = swapped(sized);
      std::memcpy(at, &sized, sizeof sized);
    }
  };
  if (element_bytes == 2) all(std::uint16_t(0), [](std::uint16_t v) { return __builtin_bswap16(v); });
  if (element_bytes == 4) all(std::uint32_t(0), [](std::uint32_t v) { return __builtin_bswap32(v); });
  if (element_bytes == 8) all(std::uint64_t(0), [](std::uint64_t v) { return __builtin_bswap64(v); });
}

void labels_to_int32(const void* from, DType type, std::int64_t count, std::int64_t ignored, std::int32_t* to) {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max(), least = -largest - 1;
  visit(type, from, [&](const auto* values) {
    using T = std::remove_cvref_t<decltype(*values)>;
    if constexpr (std::is_integral_v<T> && (sizeof(T) < 4 || std::is_same_v<T, std::int32_t>)) {
      const std::int32_t none = ignored > largest ? -1 : std::int32_t(ignored);
      for (std::int64_t i = 0; i < count; ++i) to[i] = values[i] == none ? -1 : std::int32_t(values[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        const double v = as_double(values[i]);
        const bool counts = v != double(ignored);
        if (counts && (v > largest || v < least)) fail(Exit::data, "label {:g} is not a class number", v);
        to[i] = counts ? std::int32_t(v) : -1;
      }
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

void add_to_sums(const StoredValues& sample, const ValueTransform& to_value, double* sums, double* sums_of_squares) {
  const std::int64_t pixels = sample.count / sample.channels;
  const std::int64_t pixel_stride = sample.channels_first ? 1 : sample.channels;
  const std::int64_t channel_stride = sample.channels_first ? pixels : 1;
  visit(sample.dtype, sample.data, [&](const auto* data) {
    for (std::int64_t c = 0; c < sample.channels; ++c) {
      double sum = 0, squares = 0;
      for (std::int64_t p = 0; p < pixels; ++p) {
        const double stored = as_double(data[c * channel_stride + p * pixel_stride]);
        const double value = apply(to_value.transform, stored * to_value.scale + to_value.offset);
        sum += value;
        squares += value * value;
      }
      sums[c] += sum;
      sums_of_squares[c] += squares;
    }
  });
}

}  // namespace millrace
