// Kernels for two sizes of registers: the same templates with AVX-512, which has 32 registers of 16 float32, and with
// AVX2, which has 16 registers of 8. A vector type that is wider than a register would not stay in registers: GCC keeps
// it in memory.
#pragma once
#include <cstdint>

#include "millrace/base/types.hpp"

namespace millrace::cpu {

// What a register holds: 16 channels, or 8. Channels may lie anywhere in memory; a Register is aligned.
struct Wide {
  static constexpr int count = 16;
  typedef float Register __attribute__((vector_size(64)));
  typedef float Channels __attribute__((vector_size(64), aligned(alignof(float)), may_alias));
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  typedef std::uint16_t AllHalves __attribute__((vector_size(64)));
  typedef std::uint16_t Halves __attribute__((vector_size(32)));
  typedef std::uint16_t HalvesAt __attribute__((vector_size(32), aligned(alignof(bf16)), may_alias));
};
struct Narrow {
  static constexpr int count = 8;
  typedef float Register __attribute__((vector_size(32)));
  typedef float Channels __attribute__((vector_size(32), aligned(alignof(float)), may_alias));
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  typedef std::uint16_t AllHalves __attribute__((vector_size(32)));
  typedef std::uint16_t Halves __attribute__((vector_size(16)));
  typedef std::uint16_t HalvesAt __attribute__((vector_size(16), aligned(alignof(bf16)), may_alias));
};

// Attributes of functions that use Wide or Narrow. Whatever they call must be always_inline: anything else, a lambda
// too, is compiled for the baseline instruction set.
#ifdef __x86_64__
#define MR_WIDE __attribute__((target("avx512f,avx512bw,avx2,fma")))
#define MR_NARROW __attribute__((target("avx2,fma")))
#else
#define MR_WIDE
#define MR_NARROW
#endif

template <class Of>
__attribute__((always_inline)) inline const typename Of::Channels& channels_at(const float* from) {
  return *reinterpret_cast<const typename Of::Channels*>(from);
}
template <class Of>
__attribute__((always_inline)) inline typename Of::Channels& channels_at(float* to) {
  return *reinterpret_cast<typename Of::Channels*>(to);
}

// A register of channels of float32 or bf16, as float32. A bf16 is the upper half of a float32.
template <class Of>
__attribute__((always_inline)) inline void load_channels(typename Of::Register& to, const float* from) {
  to = channels_at<Of>(from);
}
template <class Of>
__attribute__((always_inline)) inline void load_channels(typename Of::Register& to, const bf16* from) {
  using Words = typename Of::Words;
  const typename Of::Halves half = *reinterpret_cast<const typename Of::HalvesAt*>(from), zero{};
  // The zeros widen each number to 32 bits, by one instruction (vpmovzxwd). For __builtin_convertvector, GCC 12 takes
  // several.
  if constexpr (Of::count == 8)
    to = (typename Of::Register)(
        (Words)__builtin_shufflevector(half, zero, 0, 8, 1, 8, 2, 8, 3, 8, 4, 8, 5, 8, 6, 8, 7, 8) << 16);
  else
    to = (typename Of::Register)((Words)__builtin_shufflevector(half, zero, 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6,
                                                                16, 7, 16, 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16,
                                                                14, 16, 15, 16)
                                 << 16);
}
// The same to memory. Rounds to bf16 as bf16(float) does: to nearest, ties to even, and NaN stays NaN.
template <class Of>
__attribute__((always_inline)) inline void store_channels(float* to, const typename Of::Register& from) {
  channels_at<Of>(to) = from;
}
template <class Of>
__attribute__((always_inline)) inline void store_channels(bf16* to, const typename Of::Register& from) {
  using Words = typename Of::Words;
  const Words bits = (Words)from, is_nan = (Words)(from != from);
  const Words rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
  const auto all = (typename Of::AllHalves)((is_nan & quiet) | (~is_nan & rounded));
  auto& upper = *reinterpret_cast<typename Of::HalvesAt*>(to);
  if constexpr (Of::count == 8)
    upper = __builtin_shufflevector(all, all, 1, 3, 5, 7, 9, 11, 13, 15);
  else
    upper = __builtin_shufflevector(all, all, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

}  // namespace millrace::cpu
