// LZ4: a header (8 bytes: size, 4: size of a block, big-endian), then blocks behind their stored sizes; one that did
// not shrink is stored as it was.
#include <lz4.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

void decode(const FilterSpec&, Bytes& in, Bytes& out, std::size_t) {
  constexpr std::size_t header = 12;
  const auto need = [](bool good) {
    if (!good) fail(Exit::data, "lz4: damaged");
  };
  need(in.size() >= header);
  const auto bytes = std::size_t(read_big_endian(in.data(), 8)), block = std::size_t(read_big_endian(in.data() + 8, 4));
  need(bytes / 256 <= in.size() && (block > 0 || bytes == 0));  // LZ4 makes at most 255 bytes of one
  out.discard(bytes);
  std::size_t at = header;
  for (std::size_t made = 0; made < bytes; made += block) {
    const std::size_t size = std::min(block, bytes - made);
    need(in.size() - at >= 4);
    const auto stored = std::size_t(read_big_endian(in.data() + at, 4));
    at += 4;
    need(in.size() - at >= stored);
    if (stored == size)
      std::memcpy(out.data() + made, in.data() + at, size);
    else
      lz4_block(in.data() + at, stored, out.data() + made, size);
    at += stored;
  }
}

}  // namespace

void lz4_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes) {
  if (in_bytes > INT_MAX || out_bytes > INT_MAX ||
      ::LZ4_decompress_safe(in, out, int(in_bytes), int(out_bytes)) != int(out_bytes))
    fail(Exit::data, "lz4: damaged");
}

const Codec lz4_codec{32004, nullptr, decode};

}  // namespace millrace::io
