// Collective calls of HDF5 by more than one thread of a rank: a thread that reads for the loader, and the main thread,
// which writes checkpoints. MPI wants them in one order on all ranks, and the room's lock would let two threads wait
// for each other across ranks. So rank 0 decides whose turn it is.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace::io {

// Held for collective calls that belong together, where all ranks come without waiting for a read in between: no round
// begins meanwhile. Where ranks have no MPI it does nothing.
class CollectiveLock {
 public:
  explicit CollectiveLock(World&);  // collective
  CollectiveLock(CollectiveLock&&) = default;

 private:
  friend class CollectiveSchedule;
  CollectiveLock() = default;
  std::unique_lock<std::mutex> lock_;
};

// Reads that the ranks make together, each whenever it has something to read. A round begins when every rank wants
// something, or when one has waited 2 ms for the others; these take part with nothing. So no rank's full ring, short
// epoch or failed read holds up another, and all make the same calls.
class CollectiveSchedule {
 public:
  explicit CollectiveSchedule(World&);  // collective; MPI is needed
  ~CollectiveSchedule();                // collective; after next() has given none

  // By any thread. What this rank wants, as numbers that all ranks know, is for one round; it is asked for once it is
  // not empty, and again only after that round. leave(): this rank wants nothing any more.
  void request(std::vector<std::int64_t> numbers);
  void leave();

  struct Round {
    std::vector<std::int64_t> numbers;  // that any rank wants, ascending: the same on all ranks
    bool mine = false;                  // what this rank wanted is among them
    CollectiveLock turn;
  };
  // By one thread of each rank, again and again: waits for the next round. None: all ranks have left. Error(comm).
  std::optional<Round> next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::io
