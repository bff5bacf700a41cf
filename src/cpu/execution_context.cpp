#include "millrace/compute/execution_context.hpp"

#include <fmt/core.h>

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/comm/world.hpp"

namespace millrace {
namespace {

bool is_equal_on_all(World& world, double own) {
  double least = own, most = own;
  world.all_reduce({&least, 1}, World::Reduce::min);
  world.all_reduce({&most, 1}, World::Reduce::max);
  return least == most;
}

// Ranks that differ in one of these may have different methods to choose from, so they cannot choose together. Returns
// in what they differ, the same on all ranks; "": in nothing.
std::string difference_of(World& world) {
  const std::string isa = cpu::onednn::isa_name();
  const bool equal_processors = is_equal_on_all(world, crc32(isa.data(), isa.size()));
  const bool equal_threads = is_equal_on_all(world, cpu::thread_count());
  if (!equal_processors) return "processors";
  return equal_threads ? "" : "numbers of threads";
}

cpu::ConvSelectorOptions selector_options(World& world, const ExecutionOptions& options) {
  cpu::ConvSelectorOptions out;
  out.winograd = options.cpu.winograd == CpuOptions::Winograd::automatic;
  // The fastest method may differ from run to run, and so may the last digits of the results.
  out.timing = options.cpu.autotune && !options.deterministic;
  if (const std::string difference = out.timing ? difference_of(world) : ""; !difference.empty()) {
    if (world.rank() == 0)
      log::warn(fmt::format("the ranks have different {}: cpu.autotune is off, and fixed rules choose the methods{}",
                            difference, difference == "processors" ? "" : ". give all the same run.threads"));
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
