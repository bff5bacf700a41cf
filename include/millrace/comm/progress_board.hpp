// ProgressBoard: one number a rank, which the other ranks read without the help of what it is busy with. Answers "who
// is late?" when nobody answers any more. The ranks of a host read each other's numbers in memory; for the other hosts
// a thread answers that does nothing else, where there are other hosts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace {

class ProgressBoard {
 public:
  virtual ~ProgressBoard() = default;
  virtual void post(std::uint64_t number) = 0;  // never smaller than the last
  // This host's ranks, by their number in the world, that have posted less. From any thread. Empty also where ranks
  // cannot see each other (no room in /dev/shm).
  virtual std::vector<int> late(std::uint64_t number) const = 0;

  struct RankStatus {
    std::vector<int> late;          // have posted less
    std::vector<int> unresponsive;  // of hosts from which no answer came
  };
  // Of all ranks. Waits for answers for so long at most, and for other threads that ask; not collective.
  virtual RankStatus query_ranks(std::uint64_t number, double timeout_seconds) = 0;
  // "late: rank 1, 3 on node7, rank 9 on node8; no answer: rank 4 on node9", or that no rank is known to be.
  virtual std::string describe(const RankStatus&) const = 0;
};

std::unique_ptr<ProgressBoard> make_progress_board(World&);  // collective

}  // namespace millrace
