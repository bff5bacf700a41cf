#pragma once
#include "millrace/comm/world.hpp"

namespace millrace {

// Whether /dev/shm has space for `bytes` per rank on every host. Collective; the same on all ranks. To be called before
// an allocation: beyond the space (in containers 64 MB by default), MPI's shared windows hang or the process gets a
// SIGBUS. The environment variable MILLRACE_TEST_SHM_BYTES replaces the measured space.
bool fits_in_shared_memory(World&, std::size_t bytes);

}  // namespace millrace
