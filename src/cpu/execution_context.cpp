#include "millrace/compute/execution_context.hpp"

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/comm/world.hpp"

namespace millrace {
namespace {

// Whether the ranks compute with the same instructions. Otherwise they have different methods to choose from.
bool all_alike(World& world) {
  const std::string name = cpu::onednn::isa_name();
  const double own = crc32(name.data(), name.size());
  double least = own, most = own;
  world.all_reduce({&least, 1}, World::Reduce::min);
  world.all_reduce({&most, 1}, World::Reduce::max);
  return least == most;
}

cpu::ConvSelectorOptions selector_options(World& world, const ExecutionOptions& options) {
  cpu::ConvSelectorOptions out;
  out.winograd = options.cpu.winograd == CpuOptions::Winograd::automatic;
  // The fastest method may differ from run to run, and so may the last digits of the results.
  out.timing = options.cpu.autotune && !options.deterministic;
  if (out.timing && !all_alike(world)) {
    if (world.rank() == 0)
      log::warn("the ranks have different processors: cpu.autotune is off, and fixed rules choose the methods");
    out.timing = false;
  }
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
