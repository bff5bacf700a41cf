// Owns an NCCL communicator. It is non-blocking: calls of NCCL return at once, so that another thread can abort them.
#pragma once
#include <functional>
#include <mutex>
#include <string>

#include "cuda/nccl/nccl_library.hpp"
#include "millrace/base/types.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {

ncclDataType_t type_of(DType);

// Device memory for collectives. It is a window or registered with the communicator (zero-copy) if NCCL can do that.
struct NcclRegion {
  void* data = nullptr;
  std::size_t bytes = 0;
  ncclWindow_t window = nullptr;  // symmetric; null: there is none
  void* registration = nullptr;   // null: not registered, or a window
  bool from_nccl = false;         // allocated by ncclMemAlloc
};

class NcclComm {
 public:
  // Collective. Uses the current device. Error on all ranks if one of them does not connect in time (comm), or if its
  // NCCL is too old for an option (config).
  NcclComm(World&, const CudaOptions&, double timeout_seconds);
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

  // Collective; zero-filled. All ranks pass the same size. All get a window, or all get registered memory, or none
  // does.
  NcclRegion allocate(World&, std::size_t bytes);
  // No operation may use it any more.
  void release(NcclRegion&) noexcept;

  std::string error();    // an asynchronous failure of NCCL; "": there is none
  void abort() noexcept;  // ends NCCL's running kernels; later calls of enqueue() throw
  static std::string version();

 private:
  void connect(World&, const CudaOptions&);
  void allocate_memory(World&, NcclRegion&) const;
  bool make_window(World&, NcclRegion&);
  void register_memory(World&, NcclRegion&);
  void deregister(NcclRegion&);
  void check_alive() const;
  void finish_together(World&, const std::function<ncclResult_t()>& call, const std::string& what,
                       const std::string& advice);
  void settle(std::unique_lock<std::mutex>&, const char* what, ncclResult_t);
  std::string words(ncclResult_t) const;
  ncclComm_t comm_ = nullptr;  // null after abort()
  double timeout_;
  bool windows_ = false;  // all ranks can register windows, as far as they know
  std::mutex mutex_;
};

}  // namespace millrace::cuda
