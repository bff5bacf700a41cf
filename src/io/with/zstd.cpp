// Zstandard: a chunk is one frame.
#include <zstd.h>

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

void decode(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t expected) {
  const unsigned long long content_size = ::ZSTD_getFrameContentSize(in.data(), in.size());
  if (content_size == ZSTD_CONTENTSIZE_ERROR) fail(Exit::data, "zstd: damaged (no frame)");
  // A block of 128 KiB takes at least four bytes.
  if (expected == 0 && content_size != ZSTD_CONTENTSIZE_UNKNOWN && content_size / 32768 > in.size())
    fail(Exit::data, "zstd: damaged (impossible size)");
  if (content_size == ZSTD_CONTENTSIZE_UNKNOWN && expected == 0)
    fail(Exit::data, "zstd: the frame does not contain its size");
  if (expected > 0 && content_size != ZSTD_CONTENTSIZE_UNKNOWN && content_size != expected)
    fail(Exit::data, "zstd: damaged (it decodes to {} bytes instead of {})", content_size, expected);
  out.resize_uninitialized(expected > 0 ? expected : std::size_t(content_size));
  zstd_block(in.data(), in.size(), out.data(), out.size());
}

void encode(int level, const char* in, std::size_t bytes, ByteBuffer& out) {
  out.resize_uninitialized(::ZSTD_compressBound(bytes));
  const std::size_t made = ::ZSTD_compress(out.data(), out.size(), in, bytes, level);
  if (::ZSTD_isError(made)) fail(Exit::data, "zstd: {}", ::ZSTD_getErrorName(made));
  out.resize(made);
}

}  // namespace

void zstd_block(const char* in, std::size_t in_bytes, char* out, std::size_t out_bytes) {
  const std::size_t made = ::ZSTD_decompress(out, out_bytes, in, in_bytes);
  if (::ZSTD_isError(made)) fail(Exit::data, "zstd: damaged ({})", ::ZSTD_getErrorName(made));
  if (made != out_bytes) fail(Exit::data, "zstd: damaged (it decodes to {} bytes instead of {})", made, out_bytes);
}

const Codec zstd_codec{32015, nullptr, decode, encode};

}  // namespace millrace::io
