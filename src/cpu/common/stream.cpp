#include "cpu/common/stream.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace millrace::cpu {

#ifdef __x86_64__
void stream_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t line = 64;
  auto* out = static_cast<char*>(to);
  auto* in = static_cast<const char*>(from);
  const std::size_t head = std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(out) % line) % line);
  std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + line <= bytes; i += line)
    for (std::size_t part = 0; part < line; part += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + part)));
  std::memcpy(out + i, in + i, bytes - i);
  _mm_sfence();
}
#else
void stream_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace millrace::cpu
