// What products on AMX share. Results are computed in blocks of 32 x 32, which are 2 x 2 tiles of 16 x 16. A step of
// the depth has 32 numbers of each row and column: tiles of 16 rows (or of 16 pairs of rows, interleaved) of 64 bytes.
#pragma once
#include <cstdint>

#include "millrace/base/align.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#define MR_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))
#endif

namespace millrace::cpu::amx {

constexpr std::int64_t block = 32, tile_numbers = 512;

inline std::int64_t whole_blocks(std::int64_t count) { return ceil_div(count, block) * block; }

// Whether the processor has AMX and Linux lets this process use it.
bool permitted();

#ifdef __x86_64__
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

// Not in a register or on the stack: GCC takes only its first 8 bytes for an operand of the instruction.
inline const TileConfiguration configuration;
MR_AMX inline void configure_tiles() { _tile_loadconfig(&configuration); }
MR_AMX inline void release_tiles() { _tile_release(); }

typedef std::uint16_t Halves __attribute__((vector_size(32)));
typedef std::uint32_t Wholes __attribute__((vector_size(64)));

// 16 numbers of 16 bits as the lower halves of numbers of 32.
MR_AMX inline Wholes widen(__m256i x) { return __builtin_convertvector((Halves)x, Wholes); }
// Two neighbours along the depth lie side by side.
MR_AMX inline Wholes pairs(__m256i first, __m256i second) { return widen(first) | widen(second) << 16; }
#else
[[noreturn]] void configure_tiles();
inline void release_tiles() {}
#endif

}  // namespace millrace::cpu::amx
