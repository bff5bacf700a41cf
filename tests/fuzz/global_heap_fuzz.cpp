// Global heap collections of HDF5, from which variable-length samples are read.
#include <cstring>

#include "fuzz.hpp"
#include "millrace/io/global_heap.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  if (size < io::global_heap_id_bytes) return 0;
  const io::GlobalHeapId reference = io::parse_global_heap_id(all.data());
  const std::string_view file = all.substr(io::global_heap_id_bytes);
  if (reference.count > file.size()) return 0;  // the index refuses it earlier
  std::size_t reads = 0;
  fuzz::refuses_or_works([&] {
    std::string out;
    io::read_global_heap_object(
        [&](std::uint64_t offset, char* to, std::size_t bytes) {
          if (++reads > file.size() + 2) std::abort();  // every object takes some bytes, so this is an endless loop
          if (offset > file.size() || bytes > file.size() - offset) fail(Exit::data, "the file ends before");
          std::memcpy(to, file.data() + offset, bytes);
        },
        reference, out);
    if (out.size() != reference.count) std::abort();
  });
  return 0;
}
