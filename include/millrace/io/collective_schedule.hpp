// Ordering of collective HDF5 calls that several threads of a rank make, such as one thread for the training data and
// one for the validation data. MPI requires the same order of collective calls on all ranks. Without an agreed order,
// threads of different ranks could also wait for each other's HDF5 lock forever. So rank 0 decides the order.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace::io {

// Held while the ranks make a group of collective calls: no round of a CollectiveSchedule begins meanwhile. The ranks
// must not wait for such a round while they hold it. Does nothing without MPI.
class CollectiveLock {
 public:
  explicit CollectiveLock(World&);  // collective
  CollectiveLock(CollectiveLock&&) = default;

 private:
  friend class CollectiveSchedule;
  CollectiveLock() = default;
  std::unique_lock<std::mutex> lock_;
};

// Schedules collective reads that the ranks need at different times. A round begins when every rank has a request, or
// when one has waited 2 ms for the others; ranks without a request then take part with zero rows. So all ranks make the
// same calls, and a rank with a full buffer, a short epoch or a failed read does not block the others.
class CollectiveSchedule {
 public:
  explicit CollectiveSchedule(World&);  // collective; MPI is needed
  ~CollectiveSchedule();                // collective; only after next() has returned nullopt

  // May be called by any thread. The numbers (of chunks, for example) mean the same on all ranks and must not be empty.
  // The next request is allowed only after the round that contains this one.
  void request(std::vector<std::int64_t> numbers);
  // This rank makes no further requests.
  void leave();

  struct Round {
    std::vector<std::int64_t> numbers;  // the requests of all ranks, ascending: the same on every rank
    bool mine = false;                  // whether they contain this rank's request
    CollectiveLock turn;                // held for the round's collective calls
  };
  // Waits for the next round. One thread of each rank calls it in a loop. nullopt: all ranks have left. Error(comm) if
  // MPI fails.
  std::optional<Round> next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::io
