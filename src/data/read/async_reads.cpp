#include "millrace/data/read/async_reads.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {
namespace {

constexpr std::size_t pool_threads = 8;

// There are never more reads in flight than threads, so a stack of waiting reads is as fair as a queue.
class PooledReads : public AsyncReads {
 public:
  explicit PooledReads(std::size_t threads) : count_(threads) {
    waiting_.reserve(threads);
    done_.reserve(threads);
    added_.reserve(threads);
    try {
      for (std::size_t t = 0; t < threads; ++t) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~PooledReads() override { stop(); }

  std::size_t capacity() const override { return count_; }
  void add(const AsyncRead& read) override { added_.push_back(read); }

  void start() override {
    if (added_.empty()) return;
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), added_.begin(), added_.end());
    }
    added_.clear();
    work_added_.notify_all();
  }

  std::size_t wait(std::span<AsyncDone> out) override {
    start();
    std::unique_lock lock(mutex_);
    one_done_.wait(lock, [&] { return !done_.empty(); });
    std::size_t n = 0;
    for (; n < out.size() && !done_.empty(); ++n) {
      out[n] = done_.back();
      done_.pop_back();
    }
    return n;
  }

  std::string describe() const override { return std::to_string(count_) + " threads"; }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_added_.notify_all();
    for (auto& t : threads_) t.join();
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_added_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      const AsyncRead read = waiting_.back();
      waiting_.pop_back();
      lock.unlock();
      ssize_t n = -1;
      do n = ::pread(read.fd, read.to, read.bytes, off_t(read.offset));
      while (n < 0 && errno == EINTR);
      const AsyncDone done{read.tag, n < 0 ? -errno : std::int32_t(n)};
      lock.lock();
      done_.push_back(done);
      one_done_.notify_one();
    }
  }

  const std::size_t count_;
  std::vector<AsyncRead> added_;  // queued by add(); used by the calling thread only
  std::mutex mutex_;
  std::condition_variable work_added_, one_done_;
  std::vector<AsyncRead> waiting_;
  std::vector<AsyncDone> done_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<AsyncReads> make_pooled_reads(std::size_t threads) { return std::make_unique<PooledReads>(threads); }

std::unique_ptr<AsyncReads> make_async_reads(std::span<const std::span<char>> memory) {
  return uring_unavailable_reason().empty() ? make_uring_reads(memory) : make_pooled_reads(pool_threads);
}

DirectAlignment direct_alignment(int fd) {
#ifdef STATX_DIOALIGN  // Linux 6.1; older kernels do not report the alignment, and 4096 suits every disk
  struct statx status {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN))
    return {status.stx_dio_offset_align, status.stx_dio_mem_align};
#else
  (void)fd;
#endif
  return {};
}

}  // namespace millrace
