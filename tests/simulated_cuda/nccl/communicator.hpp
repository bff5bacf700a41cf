// Internal to the simulated NCCL: communicators.
#pragma once
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "simulated_cuda/nccl/link.hpp"

namespace millrace::simulated {

// A fault of MILLRACE_SIMULATED_FAULT. The rank is that of the communicator; without it, all ranks have the fault. The
// collectives count from 1 as they run.
//   nccl-init:RANK            the rank does not connect (ncclUnhandledCudaError); the others stay in progress
//   nccl-late:RANK:N:SECONDS  the rank's N-th collective begins late
//   nccl-stop:RANK:N:SECONDS  the rank's process is stopped (SIGSTOP) inside its N-th collective, after this time
//   nccl-error:RANK:N         the rank's N-th collective fails (ncclRemoteError) and waits for an abort
//   nccl-old:RANK             the rank of mpirun has NCCL 2.26, which knows neither windows nor policies
//   nccl-no-windows:RANK      the rank gets no window (null), as with NCCL_WIN_ENABLE=0
//   nccl-window:RANK:N        the rank's N-th registration of a window fails (ncclUnhandledCudaError)
struct NcclFault {
  std::string kind;
  int rank = -1;
  std::uint64_t number = 1;
  double seconds = 0;
};

NcclFault planned_nccl_fault();

struct NcclBuffers {
  const char* from = nullptr;
  char* to = nullptr;
  std::vector<void*> memory = {};  // handles of the memory that they are in, if both are in such memory
};

// Memory that was registered with a communicator, or as a window.
struct NcclMemory {
  char* begin = nullptr;
  std::size_t bytes = 0;
  NcclOperation::Memory kind = NcclOperation::registered;
  int window_flags = 0;
  int uses = 0;  // by operations that were begun and have not ended
};

}  // namespace millrace::simulated

// The communicator of one rank. A thread of its own carries out its calls, one at a time. It is never deleted, so that
// calls and replays of graphs after its end are recognised.
struct ncclComm {
  using Operation = millrace::simulated::NcclOperation;
  enum class Phase { open, finalizing, finalized, destroyed, aborted };

  ncclComm(int size, int rank, int device, bool blocking);

  // For the start of each call: ncclSuccess, or the error that the call shall return. Ends the process if the
  // communicator does not allow the call.
  ncclResult_t enter(const char* call);
  // Gives a task to the thread. Returns ncclInProgress, or, if the communicator is blocking, the task's result.
  ncclResult_t perform(const char* call, std::function<ncclResult_t()> task);
  ncclResult_t async_error(ncclResult_t*);  // ncclInvalidArgument after abort()

  ncclResult_t connect(const ncclUniqueId&);
  ncclResult_t launch(const char* call, Operation, millrace::simulated::NcclBuffers, cudaStream_t);
  ncclResult_t finalize();
  ncclResult_t destroy();
  ncclResult_t abort();

  ncclResult_t make_window(char* p, std::size_t bytes, ncclWindow_t* out, int flags);
  // The handle of the memory that the range is in; null: it is in none.
  void* memory_of(const void* p, std::size_t bytes);
  int device() const { return device_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  std::map<void*, millrace::simulated::NcclMemory> registrations;  // by handle. Guarded by registrations_mutex()
  static std::mutex& registrations_mutex();

  bool fault(const char* kind, std::uint64_t number) const;

 private:
  void serve();
  ncclResult_t meet(const ncclUniqueId&);
  ncclResult_t flush_and_meet();
  void run(const Operation&, const millrace::simulated::NcclBuffers&);
  void transfer(const Operation&, const millrace::simulated::NcclBuffers&);
  void check_same(const Operation&) const;
  void begin_use(const std::vector<void*>& memory);
  void end_use(const std::vector<void*>& memory);
  void fail(ncclResult_t);
  // Waits until it is true; false: it was aborted, or the GPU's context is lost. In the stream: the wait of a kernel.
  bool wait(const std::function<bool()>&, bool in_stream);

  const int size_, rank_, device_;
  const bool blocking_;
  millrace::simulated::NcclFault fault_;
  std::thread thread_;
  std::mutex mutex_;  // guards the members up to the next comment
  std::condition_variable changed_;
  std::function<ncclResult_t()> task_;
  const char* task_name_ = "";
  ncclResult_t error_ = ncclSuccess;
  Phase phase_ = Phase::open;
  bool used_ = false;
  cudaStream_t stream_ = nullptr;
  std::uint64_t eager_ = 0, recorded_ = 0;  // operations outside of captures, and in captures
  // Of the operations, which run in the thread of a stream.
  std::atomic<bool> aborted_{false}, running_{false};
  std::atomic<std::uint64_t> pending_{0};
  millrace::simulated::NcclLink link_;
  std::uint64_t runs_ = 0, step_ = 0;
  std::uint64_t windows_ = 0;  // registrations so far, in the thread
};
