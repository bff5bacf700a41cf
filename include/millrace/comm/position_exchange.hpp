// Connects the watchdog with the other ranks. The ranks of a host map each other's positions. If there are several
// hosts, the first rank of each that runs sends the positions of its host to the first ranks of the first two hosts,
// which answer with theirs. So each host knows whether these two run, and they know about all ranks.
#pragma once
#include <memory>

#include "millrace/comm/world.hpp"

namespace millrace {

class PositionExchange {
 public:
  explicit PositionExchange(World&);  // collective
  ~PositionExchange();                // call it on all ranks before MPI is finalized

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null if there is one host
};

}  // namespace millrace
