#include "millrace/compute/execution_context.hpp"

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"
#include "millrace/comm/world.hpp"

namespace millrace {
namespace {

cpu::ConvSelectorOptions selector_options(World& world, const ExecutionOptions& options) {
  cpu::ConvSelectorOptions out;
  out.winograd = options.cpu.winograd == CpuOptions::Winograd::automatic;
  // The fastest method may differ from run to run, and so may the last digits of the results.
  out.timing = options.cpu.autotune && !options.deterministic;
  out.plans.rank = world.rank();
  if (world.size() > 1)
    out.plans.broadcast = [&world](const std::string& text) { return world.broadcast_string(text); };
  return out;
}

}  // namespace

ExecutionContext make_cpu_context(World& world, const ExecutionOptions& options) {
  cpu::set_thread_count(options.placement.compute_threads);
  ExecutionContext compute;
  compute.device = make_cpu_device(world.local_size());
  compute.backend = make_cpu_backend(*compute.device, selector_options(world, options));
  compute.collective = make_host_collective(world, options.collective);
  if (options.exchanges && world.size() > 1) {
    CollectiveOptions exchange = options.collective;
    exchange.progress = CollectiveOptions::Progress::inline_;  // operations wait for it at once
    compute.exchange = make_host_collective(world, exchange);
  }
  return compute;
}

}  // namespace millrace
