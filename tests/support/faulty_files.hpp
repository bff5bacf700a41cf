// Files that fail: pread, open and mmap of a program that is linked with faulty_files.cpp, or started with it in
// LD_PRELOAD and MILLRACE_TEST_FAULTS set. What io_uring reads goes past it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::test {

struct Fault {
  std::string file;                                     // in the path
  std::uint64_t from = 0, to = std::uint64_t(1) << 62;  // bytes: reads that touch them
  // errno; ESTALE lasts until the file is opened again, others for so many reads. Of a mapped file: pages that are not
  // there, in so many mappings; ENODEV: it cannot be mapped, but read. 0: only slow.
  int error = 0;
  int times = 1 << 30;
  double seconds = 0;    // that a read takes longer; below 0: it never returns
  bool opening = false;  // open() fails, not reads
};
void set_faults(std::vector<Fault>);

// MILLRACE_TEST_FAULTS: "file,from,to,error,times,seconds;..." with error a number.
struct Faults {  // a scope
  explicit Faults(std::vector<Fault> all) { set_faults(std::move(all)); }
  ~Faults() { set_faults({}); }
  Faults(const Faults&) = delete;
};

}  // namespace millrace::test
