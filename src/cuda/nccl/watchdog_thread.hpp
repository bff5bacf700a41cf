// The thread that watches the collectives on the GPU. It ends all ranks if an operation is stalled, or if NCCL or CUDA
// fails, also while all other threads wait for the GPU.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cuda/nccl/collective_tracker.hpp"
#include "cuda/nccl/nccl_comm.hpp"
#include "cuda/runtime/device.hpp"
#include "millrace/comm/progress_board.hpp"
#include "millrace/comm/world.hpp"

namespace millrace::cuda {

class WatchdogThread {
 public:
  WatchdogThread(World&, CudaDevice&, CollectiveTracker&, std::shared_ptr<NcclComm>);  // collective
  ~WatchdogThread() { end(); }
  WatchdogThread(const WatchdogThread&) = delete;
  WatchdogThread& operator=(const WatchdogThread&) = delete;

  bool end();            // ends the thread; true: it has found no failure
  void throw_failure();  // Error(comm) if it has found one

 private:
  void watch();
  std::string find_trouble(cudaStream_t own);
  std::string stalled_operation(std::uint64_t begun);
  bool wait(std::chrono::milliseconds);
  void give_up(const std::string& message);

  World& world_;
  CudaDevice& device_;
  CollectiveTracker& tracker_;
  std::shared_ptr<NcclComm> comm_;
  std::unique_ptr<ProgressBoard> board_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::string failure_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace millrace::cuda
