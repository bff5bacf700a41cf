// Elements of variable length, read without HDF5: a data set holds references, the bytes lie in global heap
// collections (HDF5 file format specification, III.E). What is here touches no HDF5 and no lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace::io {

constexpr std::size_t global_heap_id_bytes = 16;  // of an element as stored, where addresses have 8 bytes

struct GlobalHeapId {
  std::uint64_t collection = 0;  // address of the collection, from DatasetInfo::heap_base on; 0: no bytes at all
  std::uint32_t object = 0;      // its number in it, from 1 on
  std::uint32_t count = 0;       // elements of the sequence: bytes, where they are bytes
};
GlobalHeapId parse_global_heap_id(const char* stored);

// Puts bytes [offset, offset + bytes) of the file there; throws where it cannot.
using ReadBytes = std::function<void(std::uint64_t offset, char* to, std::size_t bytes)>;
// `out` gets the object's bytes. The reference's collection is an address in the file here. One read, where the object
// is the first of its collection, as large ones are. Error(data) without the file's name: damaged.
void read_global_heap_object(const ReadBytes&, const GlobalHeapId&, std::string& out);

}  // namespace millrace::io
