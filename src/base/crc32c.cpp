#include <array>

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

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint32_t r = ~seed;
  for (std::size_t i = 0; i < bytes; ++i) r = (r >> 8) ^ remainders[(r ^ p[i]) & 255];
  return ~r;
}

}  // namespace millrace
