// Reads of files under way at once: by the kernel's io_uring, or by threads. Private to the data room.
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
  std::uint32_t tag = 0;  // the caller's
};
struct AsyncDone {
  std::uint32_t tag;
  std::int32_t result;  // bytes, fewer at the end of a file; or -errno
};

// For one thread. Memory and file stay until a read is done.
class AsyncReads {
 public:
  virtual ~AsyncReads() = default;           // only when none is under way
  virtual std::size_t capacity() const = 0;  // under way at once, at most
  virtual void add(const AsyncRead&) = 0;
  virtual void start() = 0;  // those added
  // Starts those added, waits until at least one is done, and gives all that are, as many as fit. One must be under
  // way. Error(data): the kernel fails altogether.
  virtual std::size_t wait(std::span<AsyncDone>) = 0;
  virtual std::string describe() const = 0;  // "io_uring", "8 threads"
};

// memory: what reads go to; made known to the kernel where it can be, which spares it looking up every page each time.
using MakeAsyncReads = std::function<std::unique_ptr<AsyncReads>(std::span<const std::span<char>> memory)>;

std::string uring_unavailable_reason();  // why there is no io_uring; empty: there is
std::unique_ptr<AsyncReads> make_uring_reads(std::span<const std::span<char>> memory);
std::unique_ptr<AsyncReads> make_pooled_reads(std::size_t threads);
// io_uring, or where it is refused threads.
std::unique_ptr<AsyncReads> make_async_reads(std::span<const std::span<char>> memory);

// What O_DIRECT asks of a file: offsets and lengths, and addresses, are multiples of these. offset 0: it is refused.
struct DirectAlignment {
  std::uint32_t offset = 4096, memory = 4096;
};
DirectAlignment direct_alignment(int fd);

}  // namespace millrace
