// LZ4: a big-endian header (8 bytes: total size, 4 bytes: block size), then the blocks, each after its stored size. A
// block that compression does not shrink is stored as it is.
#include <lz4.h>
#include <lz4hc.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

void decode(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t) {
  constexpr std::size_t header = 12;
  const auto need = [](bool good) {
    if (!good) fail(Exit::data, "lz4: damaged");
  };
  need(in.size() >= header);
  const auto bytes = std::size_t(read_big_endian(in.data(), 8)), block = std::size_t(read_big_endian(in.data() + 8, 4));
  need(bytes / 256 <= in.size() && (block > 0 || bytes == 0));  // LZ4 produces at most 255 bytes per byte
  out.resize_uninitialized(bytes);
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

void encode(int level, const char* in, std::size_t bytes, ByteBuffer& out) {
  constexpr std::size_t header = 12, max_block = std::size_t(1) << 30;
  const std::size_t block = std::min(bytes, max_block), blocks = block == 0 ? 0 : (bytes + block - 1) / block;
  out.resize_uninitialized(header + blocks * (4 + std::size_t(::LZ4_compressBound(int(block)))));
  write_big_endian(out.data(), bytes, 8);
  write_big_endian(out.data() + 8, block, 4);
  std::size_t at = header;
  for (std::size_t done = 0; done < bytes; done += block) {
    const std::size_t size = std::min(block, bytes - done);
    char* to = out.data() + at + 4;
    const int space = ::LZ4_compressBound(int(size));
    const int made = level == 0 ? ::LZ4_compress_default(in + done, to, int(size), space)
                                : ::LZ4_compress_HC(in + done, to, int(size), space, level);
    if (made <= 0) fail(Exit::data, "lz4: cannot compress");
    std::size_t stored = std::size_t(made);
    if (stored >= size) {
      std::memcpy(to, in + done, size);
      stored = size;
    }
    write_big_endian(out.data() + at, stored, 4);
    at += 4 + stored;
  }
  out.resize(at);
}

}  // namespace

void lz4_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes) {
  if (in_bytes > INT_MAX || out_bytes > INT_MAX ||
      ::LZ4_decompress_safe(in, out, int(in_bytes), int(out_bytes)) != int(out_bytes))
    fail(Exit::data, "lz4: damaged");
}

const Codec lz4_codec{32004, nullptr, decode, encode};

}  // namespace millrace::io
