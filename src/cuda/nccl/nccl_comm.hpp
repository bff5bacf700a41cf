// Owner of an NCCL communicator, non-blocking: no call of NCCL's holds a thread, so that another one can abort.
#pragma once
#include <mutex>
#include <string>

#include "cuda/nccl/nccl_library.hpp"
#include "millrace/base/types.hpp"
#include "millrace/comm/world.hpp"

namespace millrace::cuda {

ncclDataType_t type_of(DType);

// Memory that the communicator knows of where it can (zero-copy), else plain device memory.
struct NcclRegion {
  void* data = nullptr;
  std::size_t bytes = 0;
  void* registration = nullptr;
  bool from_nccl = false;
};

class NcclComm {
 public:
  // Collective, on the current device. Error(comm) on all ranks when one does not connect in time.
  NcclComm(World&, int max_ctas, double timeout_seconds);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Makes a call that puts work into a stream, and waits until it stands there: what depends on it may be enqueued
  // after that. Throws when the communicator was aborted.
  template <class Call>
  void enqueue(const char* what, const Call& call) {
    std::unique_lock lock(mutex_);
    check_alive();
    settle(lock, what, call(comm_));
  }

  NcclRegion allocate(World&, std::size_t bytes);  // collective; zero-filled
  void release(NcclRegion&) noexcept;

  std::string error();    // what went wrong in the background; "" while all is well
  void abort() noexcept;  // ends what runs on the GPU; every later call throws
  static std::string version();

 private:
  void deregister(NcclRegion&);
  void check_alive() const;
  void settle(std::unique_lock<std::mutex>&, const char* what, ncclResult_t);
  std::string words(ncclResult_t) const;
  ncclComm_t comm_ = nullptr;  // null after abort()
  double timeout_;
  std::mutex mutex_;
};

}  // namespace millrace::cuda
