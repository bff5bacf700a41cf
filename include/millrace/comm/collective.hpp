// Collective: sums over ranks, in place, in memory that it owns. begin_* only enqueue on the comm stream; wait()
// and finish() make the compute stream wait (on the CPU: the caller). All ranks issue the same calls in the same order.
// Sums run in rank order, so the result is the same on every rank and at every timing; 16-bit elements are added in
// float32 and rounded once.
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

// Memory that a collective reduces in: valid until the Collective goes.
struct SharedRegion {
  void* data = nullptr;
  std::size_t bytes = 0;
  int id = -1;
};

// One finished operation, for the account. Seconds since the epoch of std::chrono::steady_clock.
struct CommSpan {
  int tag = 0;
  std::size_t bytes = 0;
  double queued = 0, started = 0, ended = 0;
  bool blocking = false;  // it ran inside a call that starts an operation, so the caller waited for it
  CollectiveOp op = CollectiveOp::all_reduce;
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual std::string describe() const = 0;  // "shared window, 2 ranks a host, progress thread"
  // Collective, zero-filled, page aligned. Falls back to private memory and plain MPI sums, said in one log line, when
  // /dev/shm is too small.
  virtual SharedRegion allocate(std::size_t bytes) = 0;
  // [begin, begin+count) elements of dtype in the region. tag names the operation in spans().
  virtual void all_reduce_async(const SharedRegion&, std::size_t begin, std::size_t count, DType, int tag) = 0;
  // Rank r ends up with the sum of its part r of size() equal parts (count divisible by size()); the rest is undefined.
  virtual void reduce_scatter_async(const SharedRegion&, std::size_t begin, std::size_t count, DType, int tag) = 0;
  // Part r of size() equal parts is taken from rank r; every rank ends up with all.
  virtual void all_gather_async(const SharedRegion&, std::size_t begin, std::size_t count, DType, int tag) = 0;
  // Makes the compute stream wait for the newest operation of this tag and for all begun before it, not for later ones.
  // In a recorded step: for one begun in the same recording. Errors as finish()'s.
  virtual void wait(int tag) = 0;
  // Waits until everything begun is done. Error(comm) after timeout, naming the operation and the ranks that are late.
  virtual void finish() = 0;
  virtual void all_reduce_scalars(std::span<double> values) = 0;  // immediate, in rank order
  virtual void broadcast(const SharedRegion&, std::size_t begin_bytes, std::size_t bytes, int root) = 0;  // immediate
  virtual void take_spans(
      std::vector<CommSpan>& out) = 0;  // out becomes the operations finished since the last call, in order
};

struct CollectiveOptions {
  enum class Progress { automatic, thread, inline_ };
  Progress progress =
      Progress::automatic;  // a thread where a core is free, else work is done inside begin_* and finish
  double timeout_seconds = 600;
  std::size_t chunk_bytes = 8u << 20;  // larger sums are cut (measured: 4-16 MB is fastest)
  double delay_seconds_per_mb = 0;     // tests and probes: slow every sum down by this much
  bool private_memory = false;         // tests: as if /dev/shm were too small
};

// Whether the CPU's collective works in a thread of its own, beside the caller. Not collective.
bool uses_progress_thread(const World&, CollectiveOptions::Progress);

// The CPU's collective: shared-memory window among the ranks of a host, MPI between hosts. Works over mpi_world,
// solo_world and thread worlds.
std::unique_ptr<Collective> make_host_collective(World&, const CollectiveOptions&);

}  // namespace millrace
