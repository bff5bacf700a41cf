// szip, through libaec: a little-endian size of 4 bytes, then the coded samples. Filter parameters: options, pixels per
// block, bits per pixel, pixels per scan line.
extern "C" {  // the header of libaec before 1.1 lacks extern "C"
#include <szlib.h>
}

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

void decode(const FilterSpec& filter, ByteBuffer& in, ByteBuffer& out, std::size_t expected) {
  if (in.size() < 4 || filter.values.size() < 4) fail(Exit::data, "szip: damaged");
  std::size_t bytes = 0;
  for (std::size_t i = 4; i-- > 0;) bytes = bytes << 8 | std::uint8_t(in.data()[i]);
  if (expected > 0 && bytes != expected)
    fail(Exit::data, "szip: damaged (it decodes to {} bytes instead of {})", bytes, expected);
  // libaec divides by some parameters before it checks them. The bounds are those of szip's own header.
  const unsigned pixels = filter.values[1], bits = filter.values[2], line = filter.values[3];
  if (pixels < 2 || pixels > 32 || pixels % 2 || bits < 1 || (bits > 32 && bits != 64) || line < pixels || line > 4096)
    fail(Exit::data, "szip: damaged parameters");
  if (bytes / 16384 > in.size()) fail(Exit::data, "szip: damaged");  // szip produces less per byte
  SZ_com_t parameters{};
  parameters.options_mask = int(filter.values[0]);
  parameters.pixels_per_block = int(filter.values[1]);
  parameters.bits_per_pixel = int(filter.values[2]);
  parameters.pixels_per_scanline = int(filter.values[3]);
  out.resize_uninitialized(bytes);
  std::size_t made = bytes;
  const int code = ::SZ_BufftoBuffDecompress(out.data(), &made, in.data() + 4, in.size() - 4, &parameters);
  if (code != SZ_OK || made != bytes) fail(Exit::data, "szip: damaged (code {}, {} of {} bytes)", code, made, bytes);
}

}  // namespace

const Codec szip_codec{4, nullptr, decode};

}  // namespace millrace::io
