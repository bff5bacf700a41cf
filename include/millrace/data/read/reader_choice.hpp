// Chooses the reader engine for a data set on this host.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/data/read/source.hpp"

namespace millrace {

// What the choice depends on. File systems are judged by the folder of the first file.
struct ReaderFacts {
  std::string hdf5_only_reason;  // why only the HDF5 library can read a file; empty: the other engines can too
  bool contiguous = true;        // in every file, each sample is one range of bytes
  std::uint64_t bytes = 0;       // of all samples
  std::uint64_t available = 0;   // memory that is free, or that the kernel could reclaim
  std::string file_system;       // "ext4"; empty: unknown
  bool local = true;             // the file system is on a disk of this host
  bool in_memory = false;        // the file system is in memory (tmpfs)
  std::string no_direct_io;      // why O_DIRECT is refused; empty: it works
  std::string no_uring;          // why io_uring cannot be used; empty: it can
  std::string no_mmap;           // why files cannot be mapped into memory; empty: they can
};
ReaderFacts reader_facts(const ShardIndex&);

struct ReaderChoice {
  Reader reader;    // direct, mmap or uring; mpio stands for the HDF5 library
  std::string why;  // "1.2 GiB of samples fit in half of the 20 GiB of free memory"
};
// A pure function, which applies the first rule that matches:
// 1. Only the HDF5 library can read a file: the library.
// 2. Chunked data: direct.
// 3. Files in memory: mmap, or direct where they cannot be mapped.
// 4. Network file systems and unknown ones: direct.
// 5. Data that fits in half of the available memory: mmap, or direct where it cannot be mapped.
// 6. Larger data: uring where O_DIRECT works, else direct.
ReaderChoice choose_reader(const ReaderFacts&);

// Why this engine (direct, mmap, uring) cannot read the data set, and which one can; empty: it can read it.
std::string unsupported_reason(Reader, const ReaderFacts&, const ShardIndex&);

}  // namespace millrace
