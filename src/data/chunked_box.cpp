#include <algorithm>
#include <cstring>

#include "chunked_rows.hpp"

namespace millrace {
namespace {

// Steps through [low, high) in every dimension, the last fastest; false after the last.
bool step(Shape& at, const Shape& low, const Shape& high) {
  for (int a = at.rank - 1; a >= 0; --a) {
    if (++at[a] < high[a]) return true;
    at[a] = low[a];
  }
  return false;
}

}  // namespace

void ChunkedRows::read_box(const From& from, const Shape& first, const Shape& extent, char* to) {
  const io::ChunkedLayout& l = from.layout;
  const int rank = first.rank, last = rank - 1;
  Shape low = first, high = first;  // of chunks
  for (int a = 0; a < rank; ++a) {
    const std::int64_t chunk = l.chunk[std::size_t(a)];
    low[a] = first[a] / chunk, high[a] = (first[a] + extent[a] - 1) / chunk + 1;
  }
  Shape at = low;
  do {
    Shape begin = first, end = first;  // what the chunk has of the box, in the array
    std::size_t number = 0;
    for (int a = 0; a < rank; ++a) {
      const std::int64_t chunk = l.chunk[std::size_t(a)];
      begin[a] = std::max(first[a], at[a] * chunk), end[a] = std::min(first[a] + extent[a], (at[a] + 1) * chunk);
      number = number * std::size_t(l.grid(std::size_t(a))) + std::size_t(at[a]);
    }
    const auto values = chunk(from, number, true, begin[0]);
    const std::size_t bytes = std::size_t(end[last] - begin[last]) * l.element_bytes;
    Shape line = begin, stop = end;  // lines along the last dimension
    stop[last] = begin[last] + 1;
    do {
      std::int64_t in_chunk = 0, in_box = 0;
      for (int a = 0; a < rank; ++a) {
        const std::int64_t extent_of_chunk = l.chunk[std::size_t(a)];
        in_chunk = in_chunk * extent_of_chunk + line[a] % extent_of_chunk;
        in_box = in_box * extent[a] + line[a] - first[a];
      }
      std::memcpy(to + std::size_t(in_box) * l.element_bytes, values->data() + std::size_t(in_chunk) * l.element_bytes,
                  bytes);
    } while (step(line, begin, stop));
  } while (step(at, low, high));
}

}  // namespace millrace
