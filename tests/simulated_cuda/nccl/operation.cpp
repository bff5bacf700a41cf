// The work of a simulated collective, in the thread of its stream.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include "simulated_cuda/nccl/arithmetic.hpp"
#include "simulated_cuda/nccl/communicator.hpp"
#include "simulated_cuda/simulator.hpp"

using namespace millrace::simulated;
using Clock = std::chrono::steady_clock;

void ncclComm::run(const Operation& operation, const NcclBuffers& buffers) {
  // Two operations at once: a graph and a stream, or two graphs, without an order between them. Their order could
  // differ between the ranks.
  if (running_.exchange(true))
    violation("collective", fmt::format("rank {}: '{}' runs while another operation of its communicator does", rank_,
                                        operation.describe()));
  struct End {
    std::atomic<bool>& running;
    ~End() { running = false; }
  } const end{running_};
  if (aborted_) return;  // NCCL's kernels ask for the abort when they begin
  {
    const std::lock_guard hold(mutex_);
    if (phase_ == Phase::destroyed || phase_ == Phase::finalized)
      violation("collective", fmt::format("rank {}: '{}' runs in a graph after its communicator was finalized", rank_,
                                          operation.describe()));
  }
  ++runs_;
  if (fault("nccl-late", runs_)) {
    const auto until = Clock::now() + std::chrono::duration<double>(fault_.seconds);
    if (!wait([&] { return Clock::now() >= until; }, true)) return;
  }
  if (fault("nccl-error", runs_)) {  // NCCL's kernels wait until they are aborted, also when its network has failed
    fail(ncclRemoteError);
    wait([] { return false; }, true);
    return;
  }
  if (operation.captured) begin_use(buffers.memory);
  transfer(operation, buffers);
  if (operation.captured) end_use(buffers.memory);
}

// NCCL documentation, "Collective operations": each rank must call with the same count and type, or the behaviour is
// undefined. "Using NCCL with CUDA graphs": whether an operation is captured must be uniform over all ranks, and each
// rank launches the graph of the same capture. "User buffer registration": either all ranks pass registered buffers, or
// none. NCCL_WIN_COLL_SYMMETRIC: the offsets of a buffer in its window are equal on all ranks.
void ncclComm::check_same(const Operation& mine) const {
  for (int r = 0; r < size_; ++r)
    if (const Operation& other = link_.operation_of(r); !(other == mine))
      violation("collective", fmt::format("operation {} differs: rank {} runs '{}', rank {} runs '{}'", runs_, rank_,
                                          mine.describe(), r, other.describe()));
}

void ncclComm::transfer(const Operation& operation, const NcclBuffers& buffers) {
  const std::size_t ranks = std::size_t(size_), size = size_of(operation.type);
  const bool scatters = operation.kind == Operation::reduce_scatter;
  // A piece holds the same part of each rank's slice if the ranks read different slices.
  const std::size_t longest = NcclLink::piece_bytes / size / (scatters ? ranks : 1);
  std::size_t begin = 0;
  do {
    const std::size_t n = std::min<std::size_t>(longest, operation.count - begin), bytes = n * size;
    ++step_;
    if (!wait([&] { return link_.all_taken(step_ - 1); }, true)) return;
    char* const piece = link_.piece(rank_);
    if (bytes > 0 && scatters)
      for (std::size_t r = 0; r < ranks; ++r)
        std::memcpy(piece + r * bytes, buffers.from + (r * operation.count + begin) * size, bytes);
    else if (bytes > 0 && (operation.kind != Operation::broadcast || operation.root == rank_))
      std::memcpy(piece, buffers.from + begin * size, bytes);
    link_.post(operation, step_);
    if (!wait([&] { return link_.all_ready(step_); }, true)) return;
    check_same(operation);
    if (fault("nccl-stop", runs_)) {
      std::this_thread::sleep_for(std::chrono::duration<double>(fault_.seconds));
      std::raise(SIGSTOP);
    }
    char* const to = buffers.to + begin * size;
    if (operation.kind == Operation::broadcast) {
      if (bytes > 0) std::memcpy(to, link_.piece(operation.root), bytes);
    } else if (operation.kind == Operation::all_gather) {
      for (std::size_t r = 0; bytes > 0 && r < ranks; ++r)
        std::memcpy(to + r * operation.count * size, link_.piece(int(r)), bytes);
    } else {
      std::vector<const char*> from;
      for (int r = 0; r < size_; ++r) from.push_back(link_.piece(r) + (scatters ? std::size_t(rank_) * bytes : 0));
      reduce(operation.type, operation.reduction, from, to, n);
    }
    link_.take(step_);
    begin += n;
  } while (begin < operation.count);
}
