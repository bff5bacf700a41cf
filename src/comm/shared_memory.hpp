// Memory that the ranks of a host share: MPI windows, or memory of the process if the ranks are its threads. Private to
// the comm room.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/base/types.hpp"
#include "millrace/comm/world.hpp"

namespace millrace {

class SharedMemory;

// One region: this rank's part, and the addresses at which the parts of the host's ranks are mapped.
struct MappedRegion {
  void* mine = nullptr;
  std::vector<void*> peers;  // by local rank; only `mine` if the memory is private
  std::size_t bytes = 0;
  SharedMemory* memory = nullptr;
  std::shared_ptr<void> owner;  // of `mine`, unless it is a part of a window
};

// Memory that no other rank maps, filled with zeros. Throws Error(config) if there is not enough.
MappedRegion make_private_region(std::size_t bytes);

// The progress of a rank, and the values of its scalar all-reduces. Zero-filled memory is a valid initial state.
struct alignas(64) RankCounters {
  std::atomic<std::uint64_t> begun;   // operations
  std::atomic<std::uint64_t> done;    // operations
  std::atomic<std::uint64_t> posted;  // scalar all-reduces; on a ProgressBoard, the posted number
  static constexpr std::size_t values_count = 64;
  std::array<double, 2 * values_count> values;  // of the last two scalar all-reduces
  // Of the first rank of a host, which reduces the scalars between hosts: the last sums, and how many it has written.
  std::atomic<std::uint64_t> summed;
  std::array<double, values_count> sums;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual MappedRegion allocate(std::size_t bytes) = 0;  // collective; zero-filled, page aligned
  virtual bool shared() const = 0;  // false: each rank has private memory, and the ranks exchange MPI messages

  // The functions below are for several hosts and for private memory. MPI waits without a timeout and keeps a core
  // busy. Therefore poll barrier_passed() until it returns true before each call of the other functions: the first call
  // enters the barrier, and the result is true when all have entered. Only the ranks meet that exchange messages, so
  // enter it only when all ranks of the host are ready. There are two independent barriers, so that two threads can use
  // them: `values` for gather_values(), of the first rank of each host; `operation` for the rest, of the ranks with the
  // same local number on all hosts. A rank that owns no slice passes the latter at once.
  enum class Barrier { operation, values };
  virtual bool barrier_passed(Barrier) = 0;
  // Sums `count` floats (or doubles) in place over the ranks with the same local number on all hosts. The result has
  // the same bits on all of them. wire: the element type of the messages.
  virtual void all_reduce_between_hosts(float* data, std::size_t count, DType wire) = 0;
  // From this many bytes per host on, all_reduce_between_hosts() adds floats in the order of the hosts.
  static constexpr std::size_t min_ordered_slice = 16 << 10;
  virtual void all_reduce_between_hosts(double* data, std::size_t count) = 0;
  // The same sums, but each host gets only its own part of the data: part h, in the order of Place::host, is
  // [cuts[h], cuts[h + 1]). Not rounded to `wire`.
  virtual void reduce_scatter_between_hosts(float* data, const std::vector<std::size_t>& cuts, DType wire) = 0;
  // Completes `data`, over the ranks with the same local number on all hosts: the part of host h, in the order of
  // Place::host, is [cuts[h], cuts[h + 1]), in bytes.
  virtual void all_gather_between_hosts(void* data, const std::vector<std::size_t>& cuts) = 0;
  // For the first rank of each host. own: `count` values of each rank of this host, one rank after the other. Returns
  // those of all ranks, in rank order.
  virtual std::vector<double> gather_values(const std::vector<double>& own, std::size_t count) = 0;
  // Where each rank's memory is: on which host, and at which position among the ranks of the host. With private memory,
  // each rank counts as a host. Only if not one_host.
  struct Place {
    int host = 0, local = 0;
  };
  std::vector<Place> places;         // by rank
  std::vector<std::size_t> by_host;  // the ranks, ordered by Place::host, those of a host in rank order
  int hosts = 1, own_host = 0;
  int local = 0;         // this rank's position among the ranks whose memory is mapped
  int slice_owners = 1;  // number of local ranks that own a slice: the smallest number of ranks on any host
  bool one_host = true;  // all ranks share memory: no messages are needed
};

std::unique_ptr<SharedMemory> make_mpi_memory(World&, bool private_memory);
std::unique_ptr<SharedMemory> make_thread_memory(World&);

}  // namespace millrace
