// Collective: all-reduce, reduce-scatter and all-gather over the ranks, in place, in memory that the Collective owns.
// The *_async calls start an operation on the comm stream; wait() and finish() make the compute stream wait for it (on
// the CPU: the caller). All ranks must make the same calls in the same order. Every rank gets the same bits. In which
// order values are added depends on the implementation: make_host_collective() states it; NCCL does not, but gives the
// same bits for the same ranks, sizes and settings.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/collective_op.hpp"
#include "millrace/base/types.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/device/device.hpp"

namespace millrace {

// Memory that a Collective allocated and works on. Valid until the Collective is destroyed.
struct SharedRegion {
  void* data = nullptr;
  std::size_t bytes = 0;
  int id = -1;
};

// One finished operation, for the account. Times are seconds since the epoch of std::chrono::steady_clock.
struct CommSpan {
  int tag = 0;
  std::size_t bytes = 0;
  double queued = 0, started = 0, ended = 0;
  bool blocking = false;  // the caller waited for it: it ran inside an *_async call, or by all_gather()
  CollectiveOp op = CollectiveOp::all_reduce;
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual std::string describe() const = 0;  // "shared window, 2 ranks per host, progress thread"
  // Allocates zero-filled, page-aligned memory; collective. If /dev/shm is too small, the memory is private, the
  // operations use MPI messages, and one log line says so.
  virtual SharedRegion allocate(std::size_t bytes) = 0;
  // Sums the elements [begin, begin + count) of the region over all ranks. tag identifies the operation in wait(), in
  // CommSpan and in messages.
  virtual void all_reduce_async(const SharedRegion&, std::size_t begin, std::size_t count, DType, int tag) = 0;
  // Splits the range into one equal part per rank; count must be divisible by their number. Rank r gets the sum of part
  // r. The other parts are undefined afterwards.
  virtual void reduce_scatter_async(const SharedRegion&, std::size_t begin, std::size_t count, DType, int tag) = 0;
  // Splits the range in the same way. Every rank gets all parts, part r from rank r.
  virtual void all_gather_async(const SharedRegion&, std::size_t begin, std::size_t count, DType, int tag) = 0;
  // The same, and the compute stream waits for it at once. Its span begins when that stream begins to wait.
  virtual void all_gather(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype, int tag) {
    all_gather_async(region, begin, count, dtype, tag);
    wait(tag);
  }
  // Makes the compute stream wait for the newest operation with this tag and for all operations started before it, but
  // not for later ones. In a captured step, the operation must have been started in the same capture. Throws as
  // finish() does.
  virtual void wait(int tag) = 0;
  // Waits for all operations that were started. Error(comm) after the timeout; it names the operation and the ranks
  // that are late.
  virtual void finish() = 0;
  // Sums the values over all ranks, in rank order. Blocks until the result is there.
  virtual void all_reduce_scalars(std::span<double> values) = 0;
  // Copies a range of the region from rank `root` to all ranks. Blocks until it is done.
  virtual void broadcast(const SharedRegion&, std::size_t begin_bytes, std::size_t bytes, int root) = 0;
  // Replaces the contents of `out` by the operations that finished since the last call, in order.
  virtual void take_spans(std::vector<CommSpan>& out) = 0;
};

struct CollectiveOptions {
  enum class Progress { automatic, thread, inline_ };
  // What drives operations on the CPU. automatic: a progress thread if the rank has at least two cores; otherwise, the
  // *_async calls and finish() do the work (inline_).
  Progress progress = Progress::automatic;
  double timeout_seconds = 600;
  std::size_t chunk_bytes = 8u << 20;  // larger operations are split into chunks (measured: 4-16 MB is fastest)
  double delay_seconds_per_mb = 0;     // for tests and probes: delays every operation
  bool private_memory = false;         // for tests: behave as if /dev/shm were too small
};

// Whether the host collective uses a progress thread. Not collective.
bool uses_progress_thread(const World&, CollectiveOptions::Progress);

// The Collective of the CPU: shared memory between the ranks of a host, MPI between hosts. Works with mpi_world(),
// solo_world() and thread worlds. The ranks of a host are added in rank order; 16-bit elements are added in float32 and
// rounded once. Between hosts, the sum of each host is sent in the element type, so 16-bit sums are rounded once more.
std::unique_ptr<Collective> make_host_collective(World&, const CollectiveOptions&);

}  // namespace millrace
