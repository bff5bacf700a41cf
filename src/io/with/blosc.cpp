// Blosc, whose buffers contain their size. It uses one thread, because the loader's threads decode different chunks.
#include <blosc.h>

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

void decode(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t expected) {
  std::size_t bytes = 0;
  if (::blosc_cbuffer_validate(in.data(), in.size(), &bytes) < 0) fail(Exit::data, "blosc: damaged (header)");
  if (expected > 0 && bytes != expected)
    fail(Exit::data, "blosc: damaged (it decodes to {} bytes instead of {})", bytes, expected);
  if (bytes / 65536 > in.size()) fail(Exit::data, "blosc: damaged (impossible size)");
  out.resize_uninitialized(bytes);
  const int made = ::blosc_decompress_ctx(in.data(), out.data(), bytes, 1);
  if (made < 0 || std::size_t(made) != bytes) fail(Exit::data, "blosc: damaged (code {})", made);
}

}  // namespace

const Codec blosc_codec{32001, nullptr, decode};

}  // namespace millrace::io
