// A file that is written under a temporary name beside the final one, which it gets when it is complete. Every failure
// is an Error(data) with the path and the reason of the system, such as a full disk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace millrace {

class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path&);  // Error(data): it cannot be created
  ~AtomicFile();                                      // removes the file unless finish() was called
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // For libraries that write by themselves. They report errno to fail_writing().
  int descriptor() const { return fd_; }
  [[noreturn]] void fail_writing(int error) const;
  void write(const void* data, std::size_t bytes);  // behind what was written before
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void finish();  // flushes the file to the disk and gives it its final name

 private:
  std::filesystem::path path_, aside_;  // aside_: empty after finish()
  int fd_ = -1;
};

}  // namespace millrace
