// Kernels for two sizes of registers: the same templates with AVX-512, which has 32 registers of 16 float32, and with
// AVX2, which has 16 registers of 8. A vector type that is wider than a register would not stay in registers: GCC keeps
// it in memory.
#pragma once
#include <cstdint>

namespace millrace::cpu {

// What a register holds: 16 channels, or 8. Channels may lie anywhere in memory; a Register is aligned.
struct Wide {
  static constexpr int count = 16;
  typedef float Register __attribute__((vector_size(64)));
  typedef float Channels __attribute__((vector_size(64), aligned(alignof(float)), may_alias));
};
struct Narrow {
  static constexpr int count = 8;
  typedef float Register __attribute__((vector_size(32)));
  typedef float Channels __attribute__((vector_size(32), aligned(alignof(float)), may_alias));
};

// Attributes of functions that use Wide or Narrow. Whatever they call must be always_inline: anything else, a lambda
// too, is compiled for the baseline instruction set.
#ifdef __x86_64__
#define MR_WIDE __attribute__((target("avx512f,avx2,fma")))
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

}  // namespace millrace::cpu
