// Masks of one bit per element, which say which elements a dropout keeps. 256 elements make eight 32-bit words. Element
// 8 j + l is bit j of word l, so masks are packed and applied with vector operations of eight lanes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace::cpu {

inline std::size_t bits_bytes(std::int64_t count) { return std::size_t((count + 255) / 256 * 32); }

// Sets each bit to !(value <= 0), which is 1 for a NaN.
void pack_positive(std::uint32_t* bits, const float* values, std::int64_t count);
// dst = bit ? src * factor : 0. dst may be src.
void apply_bits(float* dst, const float* src, const std::uint32_t* bits, float factor, std::int64_t count);

}  // namespace millrace::cpu
