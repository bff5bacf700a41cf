#include "simulated_cuda/nccl/communicator.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <chrono>
#include <optional>
#include <sstream>

#include "simulated_cuda/runtime.hpp"

using namespace millrace::simulated;

namespace {

// As NCCL's kernels are called: "ncclDevKernel_AllReduce_RING_LL(ncclDevKernelArgsStorage<4096ul>)".
std::string kernel_of(const NcclOperation& operation) {
  static constexpr const char* kinds[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast"};
  const std::string function = fmt::format("ncclDevKernel_{}_RING_LL", kinds[operation.kind]);
  return fmt::format("_Z{}{}24ncclDevKernelArgsStorageILm4096EE", function.size(), function);
}

}  // namespace

NcclFault millrace::simulated::planned_nccl_fault() {
  NcclFault fault;
  std::istringstream in(settings().fault);
  std::string rank, number, seconds;
  std::getline(in, fault.kind, ':');
  if (std::getline(in, rank, ':')) fault.rank = std::atoi(rank.c_str());
  if (std::getline(in, number, ':')) fault.number = std::uint64_t(std::atoll(number.c_str()));
  if (std::getline(in, seconds, ':')) fault.seconds = std::atof(seconds.c_str());
  return fault;
}

ncclComm::ncclComm(int size, int rank, int device, bool blocking)
    : size_(size), rank_(rank), device_(device), blocking_(blocking), fault_(planned_nccl_fault()) {
  thread_ = std::thread([this] { serve(); });
}

void ncclComm::serve() {
  cudaSetDevice(device_);
  std::unique_lock hold(mutex_);
  for (;;) {
    changed_.wait(hold, [&] { return task_ || aborted_ || phase_ == Phase::destroyed; });
    if (!task_ || aborted_) return;
    const auto task = task_;
    hold.unlock();
    // NCCL's thread needs time as well: the caller may not rely on its speed.
    std::this_thread::sleep_for(
        std::chrono::duration<double>(settings().delay_seconds * double(random_below(100)) / 100));
    const ncclResult_t result = task();
    hold.lock();
    task_ = nullptr;
    if (result != ncclSuccess && error_ == ncclSuccess) error_ = result;
    changed_.notify_all();
  }
}

ncclResult_t ncclComm::enter(const char* call) {
  const std::lock_guard hold(mutex_);
  // NCCL documentation, ncclCommDestroy and ncclCommAbort: the communicator must not be used any more. NCCL finds most
  // such calls by a mark in the freed object. After an abort by another thread that is an error for the caller.
  if (phase_ == Phase::aborted) return ncclInvalidArgument;
  if (phase_ == Phase::destroyed) violation(call, "the communicator was destroyed");
  if (error_ != ncclSuccess) return error_;
  // ncclCommEnsureReady in NCCL's init.cc: "Attempt to use communicator before the previous operation returned
  // ncclSuccess" is an invalid argument.
  if (task_) violation(call, fmt::format("{} of this communicator is still in progress", task_name_));
  return ncclSuccess;
}

ncclResult_t ncclComm::perform(const char* call, std::function<ncclResult_t()> task) {
  std::unique_lock hold(mutex_);
  if (aborted_) return ncclInvalidArgument;
  if (task_) violation(call, fmt::format("{} of this communicator is still in progress", task_name_));
  task_name_ = call;
  task_ = std::move(task);
  changed_.notify_all();
  if (!blocking_) return ncclInProgress;
  changed_.wait(hold, [&] { return !task_ || aborted_; });
  return aborted_ ? ncclInternalError : error_;
}

ncclResult_t ncclComm::async_error(ncclResult_t* out) {
  const std::lock_guard hold(mutex_);
  if (phase_ == Phase::aborted) return ncclInvalidArgument;
  if (phase_ == Phase::destroyed) violation("ncclCommGetAsyncError", "the communicator was destroyed");
  // NCCL reports a failure of CUDA as its own. The kernels of the communicator do not run any more.
  if (context_lost() && error_ == ncclSuccess) error_ = ncclUnhandledCudaError;
  *out = error_ != ncclSuccess ? error_ : task_ ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

void ncclComm::fail(ncclResult_t error) {
  const std::lock_guard hold(mutex_);
  if (error_ == ncclSuccess) error_ = error;
}

bool ncclComm::fault(const char* kind, std::uint64_t number) const {
  return fault_.kind == kind && (fault_.rank < 0 || fault_.rank == rank_) && fault_.number == number;
}

bool ncclComm::wait(const std::function<bool()>& done, bool in_stream) {
  std::optional<Waiting> waiting;
  for (int i = 0; !done(); ++i) {
    if (aborted_ || context_lost()) return false;
    if (in_stream && !waiting) waiting.emplace();
    if (i < 50)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(i < 1000 ? 20 : 500));
  }
  return !aborted_;
}

ncclResult_t ncclComm::connect(const ncclUniqueId& id) {
  return perform("ncclCommInitRankConfig", [this, id] { return meet(id); });
}

ncclResult_t ncclComm::meet(const ncclUniqueId& id) {
  if (fault("nccl-init", 1)) return ncclUnhandledCudaError;
  if (!link_.join(id, size_, rank_, device_ + 1000 * host_of_process())) return ncclRemoteError;
  if (!wait([&] { return link_.all_joined(); }, false)) return ncclInternalError;
  link_.release_id(id);
  // NCCL documentation, "Creating a communicator": the same GPU as several ranks is not supported. NCCL fails with
  // "Duplicate GPU detected".
  for (int a = 0; a < size_; ++a)
    for (int b = 0; b < a; ++b)
      if (link_.device_of(a) == link_.device_of(b)) return ncclInvalidUsage;
  return ncclSuccess;
}

ncclResult_t ncclComm::launch(const char* call, Operation operation, NcclBuffers buffers, cudaStream_t stream) {
  const bool captured = is_capturing(stream);
  {
    const std::lock_guard hold(mutex_);
    if (phase_ != Phase::open && phase_ != Phase::aborted)
      violation(call, stream, "the communicator was finalized");  // NCCL documentation, ncclCommFinalize
    // NCCL puts its operations in different streams in order by itself. Between a graph and a stream that order is not
    // visible here, and the program would pay for it in any case.
    if (used_ && stream != stream_)
      violation(call, stream, fmt::format("earlier operations of this communicator are in {}", name_of(stream_)));
    used_ = true;
    stream_ = stream;
    operation.captured = captured;
    operation.ordinal = captured ? recorded_++ : eager_++;
  }
  return perform(call, [=, this] {
    if (context_lost()) return ncclUnhandledCudaError;
    // A capture that ends before the call is done would lose the operation.
    if (is_capturing(stream) != captured)
      violation(call, stream, "the capture of the stream began or ended while the call was in progress");
    check_enqueue(call, stream);
    if (!captured) {
      ++pending_;
      begin_use(buffers.memory);
    }
    enqueue(stream, call,
            [=, this] {
              run(operation, buffers);
              if (captured) return;
              end_use(buffers.memory);
              --pending_;
            },
            {Activity::Kind::kernel, kernel_of(operation), 0});
    return ncclSuccess;
  });
}

// nccl.h: ncclCommFinalize flushes all issued communications; the state becomes ncclSuccess when the communicator is
// globally quiescent.
ncclResult_t ncclComm::finalize() {
  {
    const std::lock_guard hold(mutex_);
    if (phase_ != Phase::open) return ncclInvalidArgument;  // NCCL's init.cc: a second call is an invalid argument
    phase_ = Phase::finalizing;
  }
  return perform("ncclCommFinalize", [this] { return flush_and_meet(); });
}

ncclResult_t ncclComm::flush_and_meet() {
  if (!wait([&] { return pending_ == 0; }, false)) return ncclInternalError;
  link_.post_finalize();
  if (!wait([&] { return link_.all_finalized(); }, false)) return ncclInternalError;
  const std::lock_guard hold(mutex_);
  if (phase_ == Phase::finalizing) phase_ = Phase::finalized;
  return ncclSuccess;
}

// NCCL documentation, ncclCommDestroy: if ncclCommFinalize was called, its state must be ncclSuccess first. Without it,
// ncclCommDestroy finalizes by itself, and so it waits for the communicator's work and for all ranks without a way to
// abort it; that is a violation here.
ncclResult_t ncclComm::destroy() {
  const char* call = "ncclCommDestroy";
  {
    const std::lock_guard hold(mutex_);
    if (phase_ == Phase::aborted) return ncclInvalidArgument;
    if (phase_ == Phase::destroyed) violation(call, "the communicator was destroyed");
    if (phase_ != Phase::finalized || task_) violation(call, "ncclCommFinalize has not completed");
    const std::lock_guard registered(registrations_mutex());
    // NCCL documentation, ncclCommDeregister needs the communicator, so it comes before its end.
    if (!registrations.empty()) violation(call, fmt::format("{} registrations are left", registrations.size()));
    phase_ = Phase::destroyed;
    changed_.notify_all();
  }
  thread_.join();
  wait([&] { return !running_; }, false);
  link_.leave();
  return ncclSuccess;
}

// NCCL documentation, ncclCommAbort: ends the operations that run and frees the communicator. Each rank aborts for
// itself: the operations of the others go on waiting.
ncclResult_t ncclComm::abort() {
  {
    const std::lock_guard hold(mutex_);
    if (phase_ == Phase::destroyed) violation("ncclCommAbort", "the communicator was destroyed");
    if (phase_ == Phase::aborted) return ncclInvalidArgument;
    phase_ = Phase::aborted;
    aborted_ = true;
    changed_.notify_all();
  }
  thread_.join();
  while (running_) std::this_thread::sleep_for(std::chrono::microseconds(100));
  link_.leave();
  const std::lock_guard hold(registrations_mutex());
  registrations.clear();
  return ncclSuccess;
}
