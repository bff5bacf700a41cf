#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/data/read/async_reads.hpp"

namespace millrace {
namespace {

constexpr unsigned entries = 64;
constexpr std::size_t max_registered = std::size_t(1) << 30;  // the kernel's limit for one registered buffer

class UringReads : public AsyncReads {
 public:
  explicit UringReads(std::span<const std::span<char>> memory) {
    if (const int failed = io_uring_queue_init(entries, &ring_, 0); failed < 0)
      fail(Exit::config, "cannot use io_uring ({}). use data.reader = direct", std::strerror(-failed));
    for (std::span<char> part : memory)
      while (!part.empty()) {
        const std::size_t n = std::min(part.size(), max_registered);
        registered_.push_back({part.data(), n});
        part = part.subspan(n);
      }
    // ulimit -l limits registered memory. Above it, the largest buffers stay unregistered, and the kernel looks up
    // their pages for each read.
    while (!registered_.empty() &&
           io_uring_register_buffers(&ring_, registered_.data(), unsigned(registered_.size())) < 0)
      registered_.erase(std::max_element(registered_.begin(), registered_.end(),
                                         [](const iovec& a, const iovec& b) { return a.iov_len < b.iov_len; }));
  }
  ~UringReads() override { io_uring_queue_exit(&ring_); }

  std::size_t capacity() const override { return entries; }

  void add(const AsyncRead& read) override {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    MR_CHECK(sqe, "more reads than the ring holds");
    const int part = registered_buffer_of(read.to, read.bytes);
    if (part >= 0)
      io_uring_prep_read_fixed(sqe, read.fd, read.to, read.bytes, read.offset, part);
    else
      io_uring_prep_read(sqe, read.fd, read.to, read.bytes, read.offset);
    sqe->user_data = read.tag;
  }

  void start() override {
    if (io_uring_sq_ready(&ring_) > 0) checked(io_uring_submit(&ring_));
  }

  std::size_t wait(std::span<AsyncDone> out) override {
    if (io_uring_cq_ready(&ring_) == 0)
      checked(io_uring_submit_and_wait(&ring_, 1));
    else
      start();
    std::size_t n = 0;
    for (io_uring_cqe* cqe = nullptr; n < out.size() && io_uring_peek_cqe(&ring_, &cqe) == 0; ++n) {
      out[n] = {std::uint32_t(cqe->user_data), cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
    }
    return n;
  }

  std::string describe() const override { return "io_uring"; }

 private:
  int registered_buffer_of(const char* to, std::size_t bytes) const {
    for (std::size_t p = 0; p < registered_.size(); ++p) {
      const auto* from = static_cast<const char*>(registered_[p].iov_base);
      if (to >= from && to + bytes <= from + registered_[p].iov_len) return int(p);
    }
    return -1;
  }

  static void checked(int result) {
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
      fail(Exit::data, "io_uring fails ({}). use data.reader = direct", std::strerror(-result));
  }

  io_uring ring_{};
  std::vector<iovec> registered_;
};

}  // namespace

std::string uring_unavailable_reason() {
  io_uring ring{};
  const int failed = io_uring_queue_init(4, &ring, 0);
  if (failed < 0) return std::string("the kernel refuses it (") + std::strerror(-failed) + ")";
  io_uring_queue_exit(&ring);
  return "";
}

std::unique_ptr<AsyncReads> make_uring_reads(std::span<const std::span<char>> memory) {
  return std::make_unique<UringReads>(memory);
}

}  // namespace millrace
