#include <array>
#include <cstring>

#include "millrace/base/files.hpp"

namespace millrace {
namespace {

constexpr auto remainders = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t r = byte;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ (r & 1 ? 0x82f63b78u : 0u);  // the polynomial with reversed bits
    table[byte] = r;
  }
  return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const unsigned char* p, std::size_t bytes,
                                                               std::uint64_t r) {
  for (; bytes >= 8; p += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    r = __builtin_ia32_crc32di(r, word);
  }
  for (; bytes > 0; ++p, --bytes) r = __builtin_ia32_crc32qi(std::uint32_t(r), *p);
  return std::uint32_t(r);
}
const bool has_instruction = __builtin_cpu_supports("sse4.2");
#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint32_t r = ~seed;
#if defined(__x86_64__)
  if (has_instruction) return ~by_instruction(p, bytes, r);
#endif
  for (std::size_t i = 0; i < bytes; ++i) r = (r >> 8) ^ remainders[(r ^ p[i]) & 255];
  return ~r;
}

}  // namespace millrace
