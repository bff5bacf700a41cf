#pragma once
#include "millrace/comm/world.hpp"

namespace millrace {

// Do `bytes` for every rank of each host fit behind MPI's shared windows? Agreed by all ranks; collective.
// MILLRACE_TEST_SHM_BYTES pretends a size (a container's default is 64 MB, and an allocation beyond it hangs or dies by
// SIGBUS).
bool fits_in_shared_memory(World&, std::size_t bytes);

}  // namespace millrace
