// File reads with many requests in flight, by the kernel's io_uring or by threads. Internal to data/ and bench/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace millrace {

struct AsyncRead {
  int fd = -1;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  char* to = nullptr;
  std::uint32_t tag = 0;  // chosen by the caller; comes back in AsyncDone
};
struct AsyncDone {
  std::uint32_t tag;
  std::int32_t result;  // bytes read, fewer than asked for at the end of a file; or -errno
};

// Used by one thread. The destination memory and the file stay valid until the read has completed.
class AsyncReads {
 public:
  virtual ~AsyncReads() = default;              // no read may be in flight
  virtual std::size_t capacity() const = 0;     // maximum number of reads in flight
  virtual void add(const AsyncRead& read) = 0;  // queues a read
  virtual void start() = 0;                     // submits the queued reads
  // Submits the queued reads, waits until at least one read has completed, and returns how many completions it wrote to
  // `out`. At least one read must be queued or in flight. Error(data): the kernel refuses to work at all.
  virtual std::size_t wait(std::span<AsyncDone> out) = 0;
  virtual std::string describe() const = 0;  // "io_uring", "8 threads"
};

// memory: the destinations of the reads. Where possible it is registered with the kernel, which then need not look up
// its pages for each read.
using MakeAsyncReads = std::function<std::unique_ptr<AsyncReads>(std::span<const std::span<char>> memory)>;

std::string uring_unavailable_reason();  // why io_uring cannot be used; empty: it can
std::unique_ptr<AsyncReads> make_uring_reads(std::span<const std::span<char>> memory);
std::unique_ptr<AsyncReads> make_pooled_reads(std::size_t threads);
// io_uring, or threads where io_uring cannot be used.
std::unique_ptr<AsyncReads> make_async_reads(std::span<const std::span<char>> memory);

// What O_DIRECT demands of a file: offsets and lengths are multiples of `offset`, addresses of `memory`. offset = 0:
// the file cannot be read by O_DIRECT.
struct DirectAlignment {
  std::uint32_t offset = 4096, memory = 4096;
};
DirectAlignment direct_alignment(int fd);

}  // namespace millrace
