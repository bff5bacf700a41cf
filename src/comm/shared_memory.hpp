// Memory that the ranks of a host share: MPI windows under MPI, plain memory of the process in a thread world. Private
// to this room.
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

// One region: this rank's part and where the parts of the host's ranks are mapped.
struct MappedRegion {
  void* mine = nullptr;
  std::vector<void*> peers;  // by local rank; only `mine` when the memory is private
  std::size_t bytes = 0;
  SharedMemory* memory = nullptr;
};

// How far each local rank is, in operations begun and done, and a board for small sums. Zero-filled memory is its valid
// start.
struct alignas(64) RankCounters {
  std::atomic<std::uint64_t> begun;
  std::atomic<std::uint64_t> done;
  std::atomic<std::uint64_t> posted;  // small sums
  static constexpr std::size_t values_count = 64;
  std::array<double, 2 * values_count> values;  // two generations
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual MappedRegion allocate(std::size_t bytes) = 0;  // collective; zero-filled, page aligned
  virtual bool shared() const = 0;  // false: each rank is alone with its memory, sums go through MPI

  // The rest is for ranks of several hosts, or of private memory. MPI waits for ever, and with a busy core: ask met()
  // until it says true before each of the calls below. Operations and values may be met for by two threads.
  enum class Barrier { operation, values };
  virtual bool barrier_passed(Barrier) = 0;
  // Sum of count floats (or doubles) over the hosts, among the ranks of this local number: in place, the same bits
  // everywhere. wire: what floats travel as.
  virtual void all_reduce_between_hosts(float* data, std::size_t count, DType wire) = 0;
  virtual void all_reduce_between_hosts(double* data, std::size_t count) = 0;
  virtual void all_gather_in_place(void* data, std::size_t bytes_per_rank) = 0;  // in place, over all ranks
  virtual std::vector<double> gather_values(const double* mine,
                                            std::size_t count) = 0;  // all ranks' values, rank by rank
  int local = 0;                                                     // this rank among those whose memory is mapped
  int slice_owners = 1;  // local ranks that own a slice: the fewest ranks on any host
  bool one_host = true;
};

std::unique_ptr<SharedMemory> make_mpi_memory(World&, bool private_memory);
std::unique_ptr<SharedMemory> make_thread_memory(World&);

}  // namespace millrace
