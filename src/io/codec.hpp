// Decoders and encoders of HDF5's filters. Private to the io room.
#pragma once
#include <cstdint>

#include "millrace/io/chunks.hpp"

namespace millrace::io {

struct Codec {
  int id;
  const char* package;  // null: available; else the Debian package that this build lacks
  // Decodes `in` to `out`; the contents of `in` may be lost. expected: size of the result in bytes, or 0 if unknown.
  // Error(data) if the input is damaged.
  void (*decode)(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t expected);
  // null: pack does not write it.
  void (*encode)(int level, const char* in, std::size_t bytes, ByteBuffer& out) = nullptr;
};

extern const Codec gzip_codec, shuffle_codec, fletcher32_codec, lzf_codec, bitshuffle_codec;  // always available
extern const Codec szip_codec, lz4_codec, zstd_codec, blosc_codec;  // with their library (with/) or as stubs (without/)

// Decodes one block of known size, as bitshuffle stores them. Error(data) if it is damaged or the library is missing.
void lz4_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes);
void zstd_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes);

// Decodes zlib's format with libdeflate to exactly out_bytes. False if that fails (damaged, another size, no
// libdeflate): the caller then uses zlib, which works or gives the reason.
bool inflate_exact(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes);

const Codec* find_codec(int id);  // null: unknown filter
// The Debian package that this build lacks for a filter, or for the compression inside its blocks; null: none.
const char* missing_package(const FilterSpec&);
// Registers the codecs that the HDF5 library lacks, so that its own reads can decode them. Called once, under Hdf5Lock.
void register_codecs();
bool is_registered(int id);  // whether register_codecs registered it

// Big-endian numbers, as in the headers of LZ4 and bitshuffle.
inline void write_big_endian(char* at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = char(value >> 8 * (bytes - 1 - i));
}
inline std::uint64_t read_big_endian(const char* at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | std::uint8_t(at[i]);
  return value;
}

}  // namespace millrace::io
