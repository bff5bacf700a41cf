// Masks of one bit per element: which elements a dropout keeps. 256 elements make eight 32-bit words;
// element 8 j + l is bit j of word l, so that packing and applying are plain vector operations of eight lanes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace::cpu {

inline std::size_t bits_bytes(std::int64_t count) { return std::size_t((count + 255) / 256 * 32); }

void pack_positive(std::uint32_t* bits, const float* values, std::int64_t count);  // bit = not (value <= 0)
void apply_bits(float* dst, const float* src, const std::uint32_t* bits, float factor,
                std::int64_t count);  // bit ? src * factor : 0; dst may be src

}  // namespace millrace::cpu
