#include "comm/shm_capacity.hpp"

#include <sys/statvfs.h>

#include <cstdlib>

namespace millrace {

bool fits_in_shared_memory(World& world, std::size_t bytes) {
  std::int64_t fits = 1;
  const double needed = double(bytes) * world.local_size() * 1.05 + (1 << 20);
  struct statvfs space {};
  if (const char* pretended = std::getenv("MILLRACE_TEST_SHM_BYTES"))
    fits = needed <= std::atof(pretended);
  else if (::statvfs("/dev/shm", &space) == 0)
    fits = needed <= double(space.f_bavail) * double(space.f_frsize);
  world.all_reduce(std::span<std::int64_t>(&fits, 1), World::Reduce::min);
  return fits != 0;
}

}  // namespace millrace
