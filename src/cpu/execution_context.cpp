#include "millrace/compute/execution_context.hpp"

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace {

ExecutionContext make_cpu_context(World& world, const ExecutionOptions& options) {
  cpu::set_thread_count(options.placement.compute_threads);
  ExecutionContext compute;
  compute.device = make_cpu_device(world.local_size());
  compute.backend = make_cpu_backend(*compute.device);
  compute.collective = make_host_collective(world, options.collective);
  if (options.exchanges && world.size() > 1) {
    CollectiveOptions exchange = options.collective;
    exchange.progress = CollectiveOptions::Progress::inline_;  // operations wait for it at once
    compute.exchange = make_host_collective(world, exchange);
  }
  return compute;
}

}  // namespace millrace
