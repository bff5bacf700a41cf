// Owns an NCCL communicator. It is non-blocking: calls of NCCL return at once, so that another thread can abort them.
#pragma once
#include <mutex>
#include <string>

#include "cuda/nccl/nccl_library.hpp"
#include "millrace/base/types.hpp"
#include "millrace/comm/world.hpp"

namespace millrace::cuda {

ncclDataType_t type_of(DType);

// Device memory for collectives. It is registered with the communicator (zero-copy) if NCCL can do that.
struct NcclRegion {
  void* data = nullptr;
  std::size_t bytes = 0;
  void* registration = nullptr;  // null: not registered
  bool from_nccl = false;        // allocated by ncclMemAlloc
};

class NcclComm {
 public:
  // Collective. Uses the current device. Error(comm) on all ranks if one of them does not connect in time.
  NcclComm(World&, int max_ctas, double timeout_seconds);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Makes a call that enqueues work in a stream, and returns when NCCL has enqueued it. what: its name in messages.
  // Error(comm) if that takes longer than the timeout, or if the communicator was aborted.
  template <class Call>
  void enqueue(const char* what, const Call& call) {
    std::unique_lock lock(mutex_);
    check_alive();
    settle(lock, what, call(comm_));
  }

  NcclRegion allocate(World&, std::size_t bytes);  // collective; zero-filled
  void release(NcclRegion&) noexcept;

  std::string error();    // an asynchronous failure of NCCL; "": there is none
  void abort() noexcept;  // ends NCCL's running kernels; later calls of enqueue() throw
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
