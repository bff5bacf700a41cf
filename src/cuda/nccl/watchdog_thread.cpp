#include "cuda/nccl/watchdog_thread.hpp"

#include <atomic>
#include <chrono>

#include "cuda/errors/check.hpp"
#include "millrace/base/log.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace::cuda {
namespace {

using namespace std::chrono_literals;

// For the report of another host: its ranks look ten times a second, ask the others and abort NCCL.
constexpr auto head_start = 8000ms;

// A stream without work, to ask whether CUDA has failed.
struct OwnStream {
  cudaStream_t stream = nullptr;
  OwnStream() { MR_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~OwnStream() { cudaStreamDestroy(stream); }
  OwnStream(const OwnStream&) = delete;
};

}  // namespace

WatchdogThread::WatchdogThread(World& world, CudaDevice& device, CollectiveTracker& tracker,
                               std::shared_ptr<NcclComm> comm)
    : world_(world), device_(device), tracker_(tracker), comm_(std::move(comm)), board_(make_progress_board(world)) {
  thread_ = std::thread([this] { watch(); });
}

bool WatchdogThread::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  return failure_.empty();
}

void WatchdogThread::throw_failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail(Exit::comm, "{}", failure_);
}

// False: the thread shall end.
bool WatchdogThread::wait(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, duration, [this] { return ending_; });
}

void WatchdogThread::watch() {
  try {
    error_context::set_rank(world_.rank());
    error_context::set_flight_recorder(&device_.flight_recorder());
    MR_CUDA(cudaSetDevice(device_.ordinal()));
    const OwnStream own;
    while (wait(100ms))
      if (const std::string trouble = find_trouble(own.stream); !trouble.empty()) return give_up(trouble);
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

std::string WatchdogThread::find_trouble(cudaStream_t own) {
  const bool late = tracker_.late().has_value();
  const std::uint64_t begun = tracker_.begun();
  board_->post(begun);
  if (late)
    if (const std::string stalled = stalled_operation(begun); !stalled.empty()) return stalled;
  const std::string trouble = comm_->error();
  if (trouble.empty()) return "";
  // NCCL only reports that CUDA has failed; CUDA's own error says what failed. It is known to every stream. The streams
  // of the device may be in a capture, which a query would invalidate.
  const cudaError_t status = cudaStreamQuery(own);
  return status == cudaSuccess || status == cudaErrorNotReady
             ? trouble
             : error_context::describe_failure("the watchdog of collectives", status);
}

// "" if the operation completed after all, or if the thread shall end.
std::string WatchdogThread::stalled_operation(std::uint64_t begun) {
  const ProgressBoard::RankStatus ranks = board_->query_ranks(begun, 2);
  // Usually the report of the first host ends this rank too.
  if (!board_->is_first_host(ranks) && !wait(head_start)) return "";
  const auto late = tracker_.late();
  return late ? tracker_.explain(*late, board_->describe(ranks)) : "";
}

// Aborts NCCL's kernels, so that threads that wait for the GPU can go on, and then ends all ranks.
void WatchdogThread::give_up(const std::string& message) {
  const bool reports = watchdog::claim_end();
  if (reports) log::error(message);
  {
    const std::lock_guard lock(mutex_);
    failure_ = message;
  }
  auto aborted = std::make_shared<std::atomic<bool>>(false);
  std::thread([comm = comm_, aborted] {  // in a separate thread, because the abort may block as well
    comm->abort();
    *aborted = true;
  })
      .detach();
  for (int i = 0; i < 500 && !*aborted; ++i) std::this_thread::sleep_for(10ms);
  // Otherwise a thread of this rank, or another rank, reports and ends the run.
  if (!reports) std::this_thread::sleep_for(5s);
  try {
    world_.abort(int(Exit::comm));
  } catch (const std::exception&) {  // in tests, ranks are threads: the others end by their own watchdogs
  }
}

}  // namespace millrace::cuda
