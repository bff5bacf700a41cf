// Decoders of HDF5's filters, one function each. Private to the io room.
#pragma once
#include <cstdint>

#include "millrace/io/chunks.hpp"

namespace millrace::io {

struct Codec {
  int id;
  const char* package;  // null: in this build; else the Debian package with which it would be
  // in -> out; `in` may be used up. expected: bytes of the result where known, else 0. Error(data) says what is wrong.
  void (*decode)(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t expected);
  void (*encode)(int level, const char* in, std::size_t bytes, ByteBuffer& out) = nullptr;  // of those that pack writes
};

extern const Codec gzip_codec, shuffle_codec, fletcher32_codec, lzf_codec, bitshuffle_codec;  // always there
extern const Codec szip_codec, lz4_codec, zstd_codec, blosc_codec;                            // with/ or without/

// One block of known size, as bitshuffle has them. Error(data) when damaged, or without the library.
void lz4_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes);
void zstd_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes);

// zlib's format into just so many bytes, by libdeflate. False: not done (damaged, of another size, no such library);
// zlib then does it or says why not.
bool inflate_exact(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes);

const Codec* find_codec(int id);  // null: none
// The Debian package that this build lacks for a filter, or for what is inside its blocks; null: none.
const char* missing_package(const FilterSpec&);
// Makes those that HDF5 lacks known to it, so that its own reads decode them too. Once, under the room's lock.
void register_codecs();
bool is_registered(int id);  // by register_codecs

// Big-endian numbers in the headers of LZ4 and bitshuffle.
inline void write_big_endian(char* at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = char(value >> 8 * (bytes - 1 - i));
}
inline std::uint64_t read_big_endian(const char* at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | std::uint8_t(at[i]);
  return value;
}

}  // namespace millrace::io
