// Memory of which a host has one copy, shared by its ranks.
#pragma once
#include <memory>
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace {

struct NodeMemory {
  std::shared_ptr<char> data;  // zero-filled, begins a page; unmapped with its last owner, at any time
  std::size_t bytes = 0;
  bool shared = true;  // false: /dev/shm has no room for it, each rank has its own
};

// Collective. It has no name once this returns: nothing is left of it after a crash. Error(comm) where memory is short.
NodeMemory node_memory(World&, std::size_t bytes);

// Collective: the bytes that rank 0 gives, on all ranks, not to be written to. No rank but rank 0 ever holds more of
// them than its host's copy. Few bytes are not worth sharing: each rank has its own.
NodeMemory node_copy(World&, const std::string& of_rank_0);

}  // namespace millrace
