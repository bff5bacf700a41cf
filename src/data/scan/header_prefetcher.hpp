// HeaderPrefetcher: brings the beginnings of files into this host's page cache, some files ahead of the caller.
// The HDF5 library opens one file at a time; without the prefetcher, every file would cost one latency of the file
// system. Private to the data room.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {

class HeaderPrefetcher {
 public:
  static constexpr std::size_t min_files = 64;  // below, no thread is started

  // `files`: positions in `paths`, in the order in which the caller opens them. `paths` must outlive this object.
  HeaderPrefetcher(const std::vector<std::string>& paths, std::vector<std::size_t> files)
      : paths_(paths), files_(std::move(files)) {
    if (files_.size() < min_files) return;
    for (std::size_t t = 0; t < thread_count; ++t) threads_.emplace_back([this] { run(); });
  }
  ~HeaderPrefetcher() {
    ending_ = true;
    may_read_.release(thread_count);
  }
  // The caller has opened one more file.
  void file_done() {
    if (++done_ % release_step == 0) may_read_.release(release_step);
  }

 private:
  static constexpr std::size_t thread_count = 4, files_ahead = 64, header_bytes = 16 << 10;
  static constexpr std::ptrdiff_t release_step = 16;  // waking a thread costs as much as a file

  void run() {
    std::vector<char> header(header_bytes);
    for (;;) {
      may_read_.acquire();
      const std::size_t i = next_++;
      if (ending_ || i >= files_.size()) return;
      const int fd = ::open(paths_[files_[i]].c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // waits for no named pipe
      if (fd < 0) continue;
      [[maybe_unused]] const auto n = ::pread(fd, header.data(), header.size(), 0);
      ::close(fd);
    }
  }

  const std::vector<std::string>& paths_;
  const std::vector<std::size_t> files_;
  std::counting_semaphore<> may_read_{files_ahead};
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> ending_{false};
  std::size_t done_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace millrace
