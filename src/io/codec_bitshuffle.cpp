// bitshuffle: blocks of elements are transposed bit by bit, and each block may be compressed with LZ4 or Zstandard.
// Filter parameters: version (two numbers), bytes per element, elements per block (0: the default below), compression
// (0 none, 2 LZ4, 3 Zstandard).
#include <algorithm>
#include <cstring>

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

// Transposes 8 x 8 bits: one byte per row, the lowest bit first.
std::uint64_t transposed(std::uint64_t x) {
  std::uint64_t t = (x ^ x >> 7) & 0x00AA00AA00AA00AAull;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000CCCC0000CCCCull;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000F0F0F0F0ull;
  return x ^ t ^ t << 28;
}

// Row 8 b + k of the input holds bit k of byte b of all elements; count is a multiple of 8.
void unshuffle_bits(const char* in, char* out, std::size_t count, std::size_t element) {
  const std::size_t row = count / 8;
  for (std::size_t b = 0; b < element; ++b)
    for (std::size_t group = 0; group < row; ++group) {
      std::uint64_t bits = 0;
      for (std::size_t k = 0; k < 8; ++k) bits |= std::uint64_t(std::uint8_t(in[(8 * b + k) * row + group])) << 8 * k;
      bits = transposed(bits);
      for (std::size_t i = 0; i < 8; ++i) out[(8 * group + i) * element + b] = char(bits >> 8 * i);
    }
}

void decode(const FilterSpec& filter, ByteBuffer& in, ByteBuffer& out, std::size_t) {
  constexpr std::size_t header = 12, default_block_bytes = 8192, min_block = 128;
  const auto value = [&](std::size_t i) { return i < filter.values.size() ? std::size_t(filter.values[i]) : 0; };
  const std::size_t element = value(2), compression = value(4);
  const auto need = [](bool good) {
    if (!good) fail(Exit::data, "bitshuffle: damaged");
  };
  need(element > 0);
  std::size_t block = value(3) > 0 ? value(3) : std::max(min_block, default_block_bytes / element / 8 * 8),
              bytes = in.size(), at = 0;
  if (compression != 0) {
    need(in.size() >= header);
    bytes = std::size_t(read_big_endian(in.data(), 8));
    block = std::size_t(read_big_endian(in.data() + 8, 4)) / element;
    need(bytes / 1024 <= in.size());  // both compressions produce at most 1024 bytes per byte
    at = header;
  }
  need(block > 0 && block % 8 == 0 && (compression == 0 || compression == 2 || compression == 3));
  out.resize_uninitialized(bytes);
  thread_local ByteBuffer shuffled;
  const std::size_t count = bytes / element, whole = count - count % 8;
  for (std::size_t first = 0; first < whole; first += block) {
    const std::size_t n = std::min(block, whole - first), size = n * element;
    const char* from = in.data() + at;
    if (compression == 0) {
      need(in.size() - at >= size);
      at += size;
    } else {
      need(in.size() - at >= 4);
      const auto stored = std::size_t(read_big_endian(from, 4));
      need(in.size() - at - 4 >= stored);
      shuffled.resize_uninitialized(size);
      (compression == 2 ? lz4_block : zstd_block)(from + 4, stored, shuffled.data(), size);
      from = shuffled.data();
      at += 4 + stored;
    }
    unshuffle_bits(from, out.data() + first * element, n, element);
  }
  const std::size_t rest = bytes - whole * element;  // fewer than 8 elements, stored as they are
  need(in.size() - at >= rest);
  std::memcpy(out.data() + whole * element, in.data() + at, rest);
}

}  // namespace

const Codec bitshuffle_codec{32008, nullptr, decode};

}  // namespace millrace::io
