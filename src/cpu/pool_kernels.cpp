#include "cpu/pool_kernels.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cpu/common/parallel.hpp"

namespace millrace::cpu::pool {
namespace {

constexpr int lanes = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef std::int32_t Ints __attribute__((vector_size(32)));
typedef std::uint8_t Bytes __attribute__((vector_size(8)));

template <class Vector>
using Element = std::remove_reference_t<decltype(std::declval<Vector&>()[0])>;

// Loads and stores of eight channels (Whole), or of the last n channels.
struct Whole {};
template <class Vector>
__attribute__((always_inline)) inline void load(Vector& to, const void* from, std::int64_t at, Whole) {
  std::memcpy(&to, static_cast<const Element<Vector>*>(from) + at, sizeof to);
}
template <class Vector>
__attribute__((always_inline)) inline void load(Vector& to, const void* from, std::int64_t at, std::int64_t n) {
  Element<Vector> values[lanes] = {};
  for (std::int64_t l = 0; l < n; ++l) values[l] = static_cast<const Element<Vector>*>(from)[at + l];
  std::memcpy(&to, values, sizeof to);
}
template <class T, class Vector>
__attribute__((always_inline)) inline void store(T* to, std::int64_t at, const Vector& from, Whole) {
  std::memcpy(to + at, &from, sizeof from);
}
template <class T, class Vector>
__attribute__((always_inline)) inline void store(T* to, std::int64_t at, const Vector& from, std::int64_t n) {
  T values[lanes];
  std::memcpy(values, &from, sizeof from);
  for (std::int64_t l = 0; l < n; ++l) to[at + l] = values[l];
}

// Calls body(channel, Whole{}) for each eight channels, and body(channel, n) for the last n.
#define MR_FOR_LANES(body)                                    \
  std::int64_t c = 0;                                         \
  for (; c + lanes <= channels; c += lanes) body(c, Whole{}); \
  if (c < channels) body(c, channels - c)

template <class Position>
__attribute__((always_inline)) inline void routed(float* __restrict sum, const Taps& taps, std::int64_t channels) {
  for (int k = 0; k < taps.count; ++k) {
    const float* __restrict values = taps.values[k];
    const auto* __restrict positions = static_cast<const Position*>(taps.positions[k]);
    const Position number = Position(taps.numbers[k]);
    for (std::int64_t c = 0; c < channels; ++c) {
      const float v = values[c];
      sum[c] += positions[c] == number ? v : 0.0f;
    }
  }
}

}  // namespace

// Equal values: the first one is taken. A NaN is larger than every number.
MR_TARGET_CLONES void maximum(float* best, std::int32_t* position, const Taps& taps, std::int64_t channels,
                              bool first) {
  const auto body = [ =, &taps ](std::int64_t at, auto n) __attribute__((always_inline)) {
    Floats b, v;
    Ints p = Ints{} + taps.numbers[0];
    load(b, first ? taps.values[0] : best, at, n);
    if (!first) load(p, position, at, n);
    for (int k = first ? 1 : 0; k < taps.count; ++k) {
      load(v, taps.values[k], at, n);
      const Ints take = (v > b) | ((v != v) & (b == b));
      b = take ? v : b;
      p = take ? Ints{} + taps.numbers[k] : p;
    }
    store(best, at, b, n);
    store(position, at, p, n);
  };
  MR_FOR_LANES(body);
}

MR_TARGET_CLONES void sum(float* sum, const Taps& taps, std::int64_t channels, bool first) {
  const auto body = [ =, &taps ](std::int64_t at, auto n) __attribute__((always_inline)) {
    Floats s{}, v;
    for (int k = 0; k < taps.count; ++k) {
      load(v, taps.values[k], at, n);
      s += v;
    }
    if (!first) {
      load(v, sum, at, n);
      s += v;
    }
    store(sum, at, s, n);
  };
  MR_FOR_LANES(body);
}

MR_TARGET_CLONES void routed_sum(float* sum, const Taps& taps, std::int64_t channels, bool first, bool wide) {
  if (first) std::fill_n(sum, channels, 0.0f);
  if (wide)
    routed<std::uint16_t>(sum, taps, channels);
  else
    routed<std::uint8_t>(sum, taps, channels);
}

MR_TARGET_CLONES void spread(float* to, const float* values, const std::uint8_t* positions, int number,
                             std::int64_t pixels, std::int64_t width, std::int64_t channels) {
  for (std::int64_t p = 0; p < pixels; ++p, to += width * channels, values += channels, positions += channels) {
    const auto body = [=](std::int64_t at, auto n) __attribute__((always_inline)) {
      Floats v;
      Bytes b;
      load(v, values, at, n);
      load(b, positions, at, n);
      const Ints position = __builtin_convertvector(b, Ints);
      for (std::int64_t k = 0; k < width; ++k)
        store(to + k * channels, at, position == Ints{} + (number + int(k)) ? v : Floats{}, n);
    };
    MR_FOR_LANES(body);
  }
}

MR_TARGET_CLONES void maximum_of_line(float* best, std::uint8_t* positions, const float* line, int number,
                                      std::int64_t pixels, std::int64_t width, std::int64_t channels) {
  const bool first = number == 0;
  for (std::int64_t p = 0; p < pixels; ++p, line += width * channels, best += channels, positions += channels) {
    const auto body = [=](std::int64_t at, auto n) __attribute__((always_inline)) {
      Floats b, v;
      Bytes bytes{};
      load(b, first ? line : best, at, n);
      if (!first) load(bytes, positions, at, n);
      Ints position = __builtin_convertvector(bytes, Ints);
      for (std::int64_t k = first ? 1 : 0; k < width; ++k) {
        load(v, line + k * channels, at, n);
        const Ints take = (v > b) | ((v != v) & (b == b));
        b = take ? v : b;
        position = take ? Ints{} + (number + int(k)) : position;
      }
      store(best, at, b, n);
      store(positions, at, __builtin_convertvector(position, Bytes), n);
    };
    MR_FOR_LANES(body);
  }
}

MR_TARGET_CLONES void scale(float* values, float factor, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) values[c] *= factor;
}

MR_TARGET_CLONES void narrow(void* to, const std::int32_t* position, std::int64_t channels, bool wide) {
  auto* bytes = static_cast<std::uint8_t*>(to);
  auto* words = static_cast<std::uint16_t*>(to);
  if (wide)
    for (std::int64_t c = 0; c < channels; ++c) words[c] = std::uint16_t(position[c]);
  else
    for (std::int64_t c = 0; c < channels; ++c) bytes[c] = std::uint8_t(position[c]);
}

}  // namespace millrace::cpu::pool
