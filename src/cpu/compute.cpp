#include "millrace/compute/compute.hpp"

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace {

Compute make_cpu_compute(World& world, const ComputeOptions& options) {
  cpu::set_thread_count(options.placement.compute_threads);
  Compute compute;
  compute.device = make_cpu_device(world.local_size());
  compute.backend = make_cpu_backend(*compute.device);
  compute.collective = make_host_collective(world, options.collective);
  return compute;
}

}  // namespace millrace
