// ProgressBoard: one number a rank, which the other ranks of its host read without its help. Answers "who is late?"
// when nobody answers any more.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace {

class ProgressBoard {
 public:
  virtual ~ProgressBoard() = default;
  virtual void post(std::uint64_t number) = 0;  // never smaller than the last
  // This host's ranks, by their number in the world, that have posted less. From any thread. Empty also where ranks
  // cannot see each other (no room in /dev/shm).
  virtual std::vector<int> behind(std::uint64_t number) const = 0;
};

std::unique_ptr<ProgressBoard> make_progress_board(World&);  // collective

}  // namespace millrace
