// Decodes a stored chunk with one to three filters of all kinds.
#include <cstring>

#include "fuzz.hpp"
#include "millrace/io/chunks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::Choices choose({reinterpret_cast<const char*>(data), size});
  io::ChunkedLayout layout;
  layout.element_bytes = std::size_t(1) << choose.below(4);
  layout.shape = {7, 16};
  layout.chunk = {4, std::int64_t(1 + choose.below(32))};
  layout.partial_chunks_unfiltered = choose.below(2);
  layout.chunks.resize(std::size_t(layout.chunks_along(0) * layout.chunks_along(1)));
  const int ids[] = {1, 2, 3, 4, 32000, 32001, 32004, 32008, 32015};  // filter numbers registered with HDF5
  for (unsigned f = 1 + choose.below(3); f-- > 0;) {
    io::FilterSpec filter{ids[choose.below(9)], "a filter", {}};
    for (unsigned v = choose.below(8); v-- > 0;) filter.values.push_back(choose.below(70));
    layout.filters.push_back(filter);
  }
  if (!io::unsupported_filter_reason(layout.filters).empty()) return 0;
  const std::size_t number = choose.below(unsigned(layout.chunks.size()));
  layout.chunks[number].filter_mask = choose.below(8);
  const std::string_view stored = choose.rest();
  layout.chunks[number].bytes = stored.size();
  fuzz::refuses_or_works([&] {
    io::ByteBuffer raw, out;
    raw.resize_uninitialized(stored.size());
    if (!stored.empty()) std::memcpy(raw.data(), stored.data(), stored.size());
    io::decode_chunk(layout, number, raw, out);
  });
  return 0;
}
