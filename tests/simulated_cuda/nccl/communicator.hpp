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

#include "simulated_cuda/nccl/link.hpp"

namespace millrace::simulated {

// A fault of MILLRACE_SIMULATED_FAULT. The rank is that of the communicator, and the collectives count from 1 as they
// run.
//   nccl-init:RANK            the rank does not connect (ncclUnhandledCudaError); the others stay in progress
//   nccl-late:RANK:N:SECONDS  the rank's N-th collective begins late
//   nccl-stop:RANK:N          the rank's process is stopped (SIGSTOP) inside its N-th collective
//   nccl-error:RANK:N         the rank's N-th collective fails (ncclRemoteError) and waits for an abort
struct NcclFault {
  std::string kind;
  int rank = -1;
  std::uint64_t number = 1;
  double seconds = 0;
};

struct NcclBuffers {
  const char* from = nullptr;
  char* to = nullptr;
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

  bool covers(const void* p, std::size_t bytes);  // by registered memory
  int device() const { return device_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Registered ranges, by handle. Guarded by registrations_mutex().
  std::map<void*, std::pair<char*, std::size_t>> registrations;
  static std::mutex& registrations_mutex();

 private:
  void serve();
  ncclResult_t meet(const ncclUniqueId&);
  ncclResult_t flush_and_meet();
  void run(const Operation&, const millrace::simulated::NcclBuffers&);
  void transfer(const Operation&, const millrace::simulated::NcclBuffers&);
  void check_same(const Operation&) const;
  bool fault(const char* kind, std::uint64_t number) const;
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
};
