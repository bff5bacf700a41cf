// An owner for an HDF5 identifier, and the room's lock.
#pragma once
#include <hdf5.h>

#include <mutex>
#include <utility>

namespace millrace::io {

// Closes what it owns; moves, never copies. The destructor ignores failures: whoever needs to know calls release() and
// closes by hand.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(std::exchange(other.close_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_), std::swap(close_, other.close_);
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

// HDF5 built with MPI is not thread-safe: every entry into the room holds this one lock. Two threads of a rank may thus
// read and write different files; but they must not both be in collective calls, whose order could differ from rank to
// rank.
class Hdf5Lock {
 public:
  // file: what HDF5 works on, for file_in_hdf5(); null: what the Entry around this one says. Also switches off HDF5's
  // own printing of errors, which is per thread in thread-safe builds.
  explicit Hdf5Lock(const char* file = nullptr);
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  const char* outer_;
};

}  // namespace millrace::io
