// Hyperslab: a part of an array, given by a range of indices in every dimension. Private to the data room.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "millrace/device/tensor.hpp"
#include "millrace/io/chunks.hpp"

namespace millrace {

struct Hyperslab {
  Shape first, extent;  // indices [first, first + extent)
};

// Advances an index through [low, high) in C order, the last dimension fastest. Returns false after the last index.
inline bool next_index(Shape& at, const Shape& low, const Shape& high) {
  for (int a = at.rank - 1; a >= 0; --a) {
    if (++at[a] < high[a]) return true;
    at[a] = low[a];
  }
  return false;
}

// Calls f(offset, count) for each run of consecutive elements of the array that the hyperslab consists of, in C order.
template <class F>
void for_each_run(const Shape& array, const Hyperslab& slab, const F& f) {
  const auto& [first, extent] = slab;
  int inner = array.rank - 1;  // the dimensions [inner, rank) form one run
  std::int64_t count = extent[inner];
  while (inner > 0 && extent[inner] == array[inner]) count *= extent[--inner];
  Shape at = first;
  for (int moved = 0; moved >= 0;) {
    std::int64_t offset = 0;
    for (int a = 0; a < array.rank; ++a) offset = offset * array[a] + at[a];
    f(offset, count);
    for (moved = inner - 1; moved >= 0 && ++at[moved] == first[moved] + extent[moved]; --moved)
      at[moved] = first[moved];
  }
}

// Calls f(number, part) for each chunk that overlaps the hyperslab; `part` is the overlap, in indices of the array.
template <class F>
void for_each_chunk(const io::ChunkedLayout& l, const Hyperslab& slab, const F& f) {
  const auto& [first, extent] = slab;
  Shape low = first, high = first;  // indices in the grid of chunks
  for (int a = 0; a < first.rank; ++a) {
    const std::int64_t chunk = l.chunk[std::size_t(a)];
    low[a] = first[a] / chunk;
    high[a] = (first[a] + extent[a] - 1) / chunk + 1;
  }
  Shape at = low;
  do {
    Hyperslab part = slab;
    std::size_t number = 0;
    for (int a = 0; a < first.rank; ++a) {
      const std::int64_t chunk = l.chunk[std::size_t(a)];
      part.first[a] = std::max(first[a], at[a] * chunk);
      part.extent[a] = std::min(first[a] + extent[a], (at[a] + 1) * chunk) - part.first[a];
      number = number * std::size_t(l.chunks_along(std::size_t(a))) + std::size_t(at[a]);
    }
    f(number, part);
  } while (next_index(at, low, high));
}

}  // namespace millrace
