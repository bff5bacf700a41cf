#include "millrace/io/global_heap.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

constexpr std::size_t header_bytes = 16;  // of a collection, and of each object in it

std::uint64_t number(const char* at, std::size_t bytes) {
  std::uint64_t out = 0;
  for (std::size_t b = bytes; b-- > 0;) out = out << 8 | static_cast<unsigned char>(at[b]);
  return out;
}

}  // namespace

GlobalHeapId parse_global_heap_id(const char* stored) {
  return {number(stored + 4, 8), std::uint32_t(number(stored + 12, 4)), std::uint32_t(number(stored, 4))};
}

void read_global_heap_object(const ReadBytes& read, const GlobalHeapId& r, std::string& out) {
  out.resize(2 * header_bytes + r.count);
  read(r.collection, out.data(), out.size());
  if (!out.starts_with("GCOL") || out[4] != 1) fail(Exit::data, "no heap collection at byte {}", r.collection);
  const std::uint64_t end = number(out.data() + 8, 8);
  std::uint64_t at = header_bytes;
  for (const char* header = out.data() + at;; header = out.data()) {
    const std::uint64_t index = number(header, 2), bytes = number(header + 8, 8);
    if (index == 0 || at > end || end - at < header_bytes || bytes > end - at - header_bytes) break;
    if (index == r.object) {
      if (bytes < r.count) break;
      out.erase(0, header == out.data() ? header_bytes : 2 * header_bytes);
      out.resize(r.count);
      return;
    }
    const std::uint64_t step = header_bytes + bytes + (8 - bytes % 8) % 8;
    if (step > end - at || end - at - step < header_bytes) break;
    at += step;
    out.resize(std::min<std::uint64_t>(header_bytes + r.count, end - at));
    read(r.collection + at, out.data(), out.size());
  }
  fail(Exit::data, "the heap collection at byte {} has no object {} of {} bytes", r.collection, r.object, r.count);
}

}  // namespace millrace::io
