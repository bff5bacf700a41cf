// Bytes of little-endian numbers and of deflated data, for files that tests write.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>

namespace millrace::test {

inline std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int b = 0; b < bytes; ++b) out += char(value >> (8 * b));
  return out;
}

// window_bits as zlib defines them: -MAX_WBITS writes raw deflate data, MAX_WBITS + 16 writes gzip.
inline std::string deflated(const std::string& in, int window_bits = -MAX_WBITS) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string out(in.size() + 1000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  z.avail_in = uInt(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace millrace::test
