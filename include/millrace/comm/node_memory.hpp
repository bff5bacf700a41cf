// Memory that exists once per host and is shared by the ranks of that host.
#pragma once
#include <memory>
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace {

struct NodeMemory {
  std::shared_ptr<char> data;  // page-aligned; unmapped when its last owner is destroyed, which is not collective
  std::size_t bytes = 0;
  bool shared = true;  // false: each rank of the host has its own memory
};

// Allocates zero-filled memory; collective. If /dev/shm is too small, each rank gets its own. The shared memory has no
// name after the call returns, so a crash leaves nothing behind. Error(comm) if memory cannot be allocated.
NodeMemory node_memory(World&, std::size_t bytes);

// Copies the bytes of rank 0 to all ranks, once per host; collective. The result must not be written to. Apart from
// rank 0, a rank needs no second copy of the bytes while it receives them. Fewer than 64 KiB are not shared: each rank
// gets its own copy.
NodeMemory node_copy(World&, const std::string& of_rank_0);

}  // namespace millrace
