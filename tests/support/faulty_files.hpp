// Injects file errors. It replaces pread, open and mmap of a program that is linked with faulty_files.cpp, or that is
// started with it in LD_PRELOAD and with MILLRACE_TEST_FAULTS set. It does not affect reads of io_uring. Writes can
// only be made to hang, with MILLRACE_TEST_STUCK_WRITES.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::test {

struct Fault {
  std::string file;                                     // a part of the path
  std::uint64_t from = 0, to = std::uint64_t(1) << 62;  // the bytes; affects reads that overlap them
  // The errno of the read. ESTALE lasts until the file is opened again; other errors last for `times` reads. In a
  // mapped file the pages are missing, in `times` mappings. ENODEV: the file can be read but not mapped. 0: the read is
  // slow only.
  int error = 0;
  int times = 1 << 30;
  double seconds = 0;    // extra duration of a read; negative: it never returns
  bool opening = false;  // open() fails instead of reads
};
void set_faults(std::vector<Fault>);

// The format of MILLRACE_TEST_FAULTS is "file,from,to,error,times,seconds;...". error is a number.

// Sets faults until the end of the scope.
struct Faults {
  explicit Faults(std::vector<Fault> all) { set_faults(std::move(all)); }
  ~Faults() { set_faults({}); }
  Faults(const Faults&) = delete;
};

}  // namespace millrace::test
