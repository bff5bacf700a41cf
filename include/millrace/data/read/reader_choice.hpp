// Which reader engine suits a data set on this host.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/data/read/source.hpp"

namespace millrace {

// What `automatic` goes by, on this host, of the folder of the first file.
struct ReaderFacts {
  std::string hdf5_only_reason;  // why only the HDF5 library can read a file; empty: own reads do
  bool contiguous = true;        // samples are ranges of bytes, in every file
  std::uint64_t bytes = 0;       // of samples
  std::uint64_t available = 0;   // memory that is free, or that the kernel would give up
  std::string file_system;       // "ext4"; "" where it is not known
  bool local = true, in_memory = false;
  std::string no_direct_io;  // why O_DIRECT is refused; empty: it is not
  std::string no_uring;      // why there is no io_uring; empty: there is
  std::string no_mmap;       // why the kernel maps no file there into memory; empty: it does
};
ReaderFacts reader_facts(const ShardIndex&);

struct ReaderChoice {
  Reader reader;    // direct, mmap or uring; mpio stands for the HDF5 library
  std::string why;  // "1.2 GiB of samples fit in half of the 20 GiB of free memory"
};
// A pure function. HDF5 alone can read it: the library. Chunked: direct. Files in memory, or that fit in half of the
// free memory: mmap, or direct where they cannot be mapped. Larger ones where O_DIRECT is to be had: uring. Else, and
// on file systems of the network: direct.
ReaderChoice choose_reader(const ReaderFacts&);

// Why this engine (direct, mmap, uring) cannot read the set, and what can; empty: it can.
std::string unsupported_reason(Reader, const ReaderFacts&, const ShardIndex&);

}  // namespace millrace
