// gzip, shuffle, fletcher32 and LZF.
#include <zlib.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

// zlib's decoder. Each thread keeps one, because its state takes 40 KiB.
class Inflater {
 public:
  Inflater() {
    if (::inflateInit(&stream_) != Z_OK) fail(Exit::internal, "zlib cannot be initialized");
  }
  Inflater(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream_); }

  void operator()(const ByteBuffer& in, ByteBuffer& out, std::size_t expected) {
    ::inflateReset(&stream_);
    out.resize_uninitialized(expected > 0 ? expected
                                          : std::min(out.max_size(), std::max<std::size_t>(4096, 4 * in.size())));
    std::size_t taken = 0, made = 0;
    for (;;) {
      const std::size_t give = std::min<std::size_t>(in.size() - taken, UINT_MAX);
      const std::size_t space = std::min<std::size_t>(out.size() - made, UINT_MAX);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data())) + taken;
      stream_.next_out = reinterpret_cast<Bytef*>(out.data()) + made;
      stream_.avail_in = uInt(give);
      stream_.avail_out = uInt(space);
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      taken += give - stream_.avail_in;
      made += space - stream_.avail_out;
      if (code == Z_STREAM_END) break;
      if (code != Z_OK && code != Z_BUF_ERROR)
        fail(Exit::data, "gzip: damaged ({})", stream_.msg ? stream_.msg : "no reason given");
      if (made == out.size() && expected == 0)
        out.grow(out.size() + 1);
      else if (made == out.size())
        fail(Exit::data, "gzip: damaged (it decodes to more than {} bytes)", expected);
      else if (taken == in.size())
        fail(Exit::data, "gzip: damaged (it ends too early)");
    }
    out.resize(made);
  }

 private:
  z_stream stream_{};
};

void gunzip(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t expected) {
  if (expected > 0) {
    out.resize_uninitialized(expected);
    if (inflate_exact(in.data(), in.size(), out.data(), expected)) return;
  }
  thread_local Inflater inflater;
  inflater(in, out, expected);
}

// Undoes the shuffle filter, which stores all first bytes of the elements, then all second bytes, and so on.
template <std::size_t element>
void gather(const char* in, char* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t b = 0; b < element; ++b) out[i * element + b] = in[b * count + i];
}

void unshuffle(const FilterSpec& filter, ByteBuffer& in, ByteBuffer& out, std::size_t) {
  const std::size_t element = filter.values.empty() ? 1 : filter.values[0];
  if (element <= 1) return in.swap(out);
  out.resize_uninitialized(in.size());
  const std::size_t count = in.size() / element;
  if (element == 2)
    gather<2>(in.data(), out.data(), count);
  else if (element == 4)
    gather<4>(in.data(), out.data(), count);
  else if (element == 8)
    gather<8>(in.data(), out.data(), count);
  else
    for (std::size_t b = 0; b < element; ++b)
      for (std::size_t i = 0; i < count; ++i) out.data()[i * element + b] = in.data()[b * count + i];
  std::memcpy(out.data() + count * element, in.data() + count * element, in.size() - count * element);
}

// The checksum of big-endian 16-bit words.
std::uint32_t fletcher32(const char* data, std::size_t bytes) {
  const auto byte = [&](std::size_t i) { return std::uint32_t(std::uint8_t(data[i])); };
  std::uint32_t one = 0, two = 0;
  for (std::size_t at = 0; at + 1 < bytes;) {
    const std::size_t end = std::min(bytes - bytes % 2, at + 2 * 360);  // 360 words cannot overflow the sums
    for (; at < end; at += 2) {
      one += byte(at) << 8 | byte(at + 1);
      two += one;
    }
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
  }
  if (bytes % 2) {
    one += byte(bytes - 1) << 8;
    two += one;
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
  }
  one = (one & 0xffff) + (one >> 16);
  two = (two & 0xffff) + (two >> 16);
  return two << 16 | one;
}

void check_fletcher32(const FilterSpec&, ByteBuffer& in, ByteBuffer& out, std::size_t) {
  if (in.size() < 4) fail(Exit::data, "fletcher32: damaged (shorter than a checksum)");
  const std::size_t bytes = in.size() - 4;
  std::uint32_t stored = 0;
  for (std::size_t i = 4; i-- > 0;) stored = stored << 8 | std::uint8_t(in.data()[bytes + i]);
  const std::uint32_t sum = fletcher32(in.data(), bytes);
  // HDF5 before 1.6.3 wrote the bytes of each half in the other order.
  const std::uint32_t old = (sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8;
  if (stored != sum && stored != old) fail(Exit::data, "fletcher32: damaged (wrong checksum)");
  in.resize(bytes);
  in.swap(out);
}

// LZF consists of literal runs and copies of earlier output. A literal run begins with a byte below 32: its length
// minus one. A copy has 3 bits of length and 13 bits of distance; for length 7, another byte is added to the length.
void expand_lzf(const FilterSpec& filter, ByteBuffer& in, ByteBuffer& out, std::size_t expected) {
  if (expected == 0 && filter.values.size() > 2) expected = filter.values[2];  // the chunk's size, as h5py stores it
  if (expected / 264 > in.size()) fail(Exit::data, "lzf: damaged");            // three bytes produce at most 264
  out.resize_uninitialized(expected > 0 ? expected : std::min(out.max_size(), 16 * in.size() + 512));
  const auto* at = reinterpret_cast<const std::uint8_t*>(in.data());
  const auto* const end = at + in.size();
  std::size_t made = 0;
  const auto need = [&](bool good) {
    if (!good) fail(Exit::data, "lzf: damaged");
  };
  const auto make_room = [&](std::size_t bytes) {
    if (made + bytes <= out.size()) return;
    need(expected == 0);
    out.grow(made + bytes);
  };
  while (at < end) {
    std::size_t control = *at++;
    if (control < 32) {
      const std::size_t run = control + 1;
      need(std::size_t(end - at) >= run);
      make_room(run);
      std::memcpy(out.data() + made, at, run);
      at += run;
      made += run;
      continue;
    }
    std::size_t length = control >> 5;
    if (length == 7) {
      need(at < end);
      length += *at++;
    }
    need(at < end);
    const std::size_t distance = ((control & 31) << 8 | *at++) + 1;
    length += 2;
    need(distance <= made);
    make_room(length);
    char* to = out.data() + made;
    for (std::size_t i = 0; i < length; ++i) to[i] = to[i - std::ptrdiff_t(distance)];  // may overlap
    made += length;
  }
  out.resize(made);
}

}  // namespace

const Codec gzip_codec{1, nullptr, gunzip};
const Codec shuffle_codec{2, nullptr, unshuffle};
const Codec fletcher32_codec{3, nullptr, check_fletcher32};
const Codec lzf_codec{32000, nullptr, expand_lzf};

}  // namespace millrace::io
