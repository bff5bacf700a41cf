// Handle owns an HDF5 identifier; Hdf5Lock serializes all calls of HDF5. Private to the io room.
#pragma once
#include <hdf5.h>

#include <mutex>
#include <utility>

#include "millrace/watchdog/watchdog.hpp"

namespace millrace::io {

// Closes the identifier that it owns. Movable, not copyable. The destructor ignores failures; a caller that needs to
// know calls release() and closes the identifier itself.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(std::exchange(other.close_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  operator hid_t() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }
  void reset() noexcept {
    if (id_ >= 0 && close_) close_(id_);
    id_ = H5I_INVALID_HID;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

// HDF5 built with MPI is not thread-safe, so every function of this room that calls it holds this recursive lock. Two
// threads of a rank may read and write different files. They must not both make collective calls, because the order of
// these could differ between ranks.
class Hdf5Lock {
 public:
  // file: the file that HDF5 works on, for current_hdf5_file(); null: that of the enclosing Hdf5Lock. Also switches off
  // HDF5's own printing of errors, which is a setting per thread in thread-safe builds.
  // parallel: the call may wait for other ranks.
  explicit Hdf5Lock(const char* file = nullptr, bool parallel = false);
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;

 private:
  const watchdog::WaitScope waits_;  // also for another thread's call
  std::lock_guard<std::recursive_mutex> lock_;
  const char* outer_;
};

}  // namespace millrace::io
