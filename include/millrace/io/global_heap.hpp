// Reads elements of variable length without the HDF5 library. Such a data set holds references; the bytes lie in global
// heap collections (HDF5 file format specification, III.E). Needs no lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace::io {

constexpr std::size_t global_heap_id_bytes = 16;  // size of a stored element in files with 8-byte addresses

struct GlobalHeapId {
  std::uint64_t collection = 0;  // address, relative to DatasetInfo::global_heap_base; 0: an empty element
  std::uint32_t object = 0;      // number of the object in the collection, from 1 on
  std::uint32_t count = 0;       // number of values in the element
};
GlobalHeapId parse_global_heap_id(const char* stored);

// Reads the bytes [offset, offset + bytes) of the file; throws if it cannot.
using ReadBytes = std::function<void(std::uint64_t offset, char* to, std::size_t bytes)>;
// Reads the bytes of an object to `out`. Here, id.collection is an address in the file, global_heap_base included. One
// read is enough if the object is the first of its collection, as large objects are. Error(data) without the file's
// name: the heap is damaged.
void read_global_heap_object(const ReadBytes&, const GlobalHeapId&, std::string& out);

}  // namespace millrace::io
