#include <cstring>

#include "millrace/data/decode/chunked_reader.hpp"
#include "millrace/data/decode/hyperslab.hpp"

namespace millrace {

void ChunkedReader::read_hyperslab(const ChunkedDataset& from, const Hyperslab& slab, char* to) {
  const io::ChunkedLayout& l = from.layout;
  const int rank = slab.first.rank, last = rank - 1;
  for_each_chunk(l, slab, [&](std::size_t number, const Hyperslab& part) {
    const auto values = chunk(from, number, true, part.first[0]);
    const std::size_t bytes = std::size_t(part.extent[last]) * l.element_bytes;
    Shape line = part.first, stop = part.first;  // lines along the last dimension
    for (int a = 0; a < last; ++a) stop[a] += part.extent[a];
    stop[last] += 1;
    do {
      std::int64_t in_chunk = 0, in_slab = 0;
      for (int a = 0; a < rank; ++a) {
        const std::int64_t extent_of_chunk = l.chunk[std::size_t(a)];
        in_chunk = in_chunk * extent_of_chunk + line[a] % extent_of_chunk;
        in_slab = in_slab * slab.extent[a] + line[a] - slab.first[a];
      }
      std::memcpy(to + std::size_t(in_slab) * l.element_bytes, values->data() + std::size_t(in_chunk) * l.element_bytes,
                  bytes);
    } while (next_index(line, part.first, stop));
  });
}

}  // namespace millrace
