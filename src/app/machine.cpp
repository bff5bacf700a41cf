#include "app/machine.hpp"

#include <fmt/core.h>

#include <boost/version.hpp>

#include "app/commands.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/train/session/make_compute.hpp"

namespace millrace::app {

std::string describe_machine(World& world) {
  RunConfig config;
  config.run.device = DeviceChoice::cpu;
  Placement placement;
  ExecutionContext compute = make_execution_context(world, config, &placement);
  const auto places =
      world.gather(fmt::format("  rank {} @ {} (host {}, {} of {}): {}\n", world.rank(), world.host(), world.node(),
                               world.local_rank() + 1, world.local_size(), placement.str()));
  const auto devices = world.gather(fmt::format("  rank {}: {}\n", world.rank(), compute.device->describe()));
  std::string out =
      fmt::format("{}, {}{} on {}{}", version_text(), world.size(), world.size() == 1 ? " rank" : " ranks",
                  world.node_count(), world.node_count() == 1 ? " host\n\n" : " hosts\n\n");
  out += "ranks and cores\n";
  for (const auto& place : places) out += place;
  out += "devices\n";
  for (const auto& device : devices) out += device;
  // A scheduler may hide GPUs from a rank, so ranks that see others are listed too.
  const auto gpus = world.gather(describe_gpus());
  for (int r = 0; r < world.size(); ++r) {
    if (r > 0 && gpus[std::size_t(r)] == gpus[std::size_t(r - 1)]) continue;
    out += fmt::format("  GPUs{}{}\n", r > 0 ? fmt::format(" from rank {} on: ", r) : ": ", gpus[std::size_t(r)]);
  }
  out += "all-reduce\n  " + compute.collective->describe() + "\n";
  out += "libraries\n  " + mpi_library_version() + "\n  " + io::library_version() + "\n";
  out += fmt::format("  Boost {}.{}.{}\n", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100);
  const std::string has = MILLRACE_HAS, lacks = MILLRACE_LACKS;
  if (!has.empty()) out += "  built with " + has + "\n";
  if (!lacks.empty()) out += "  built without " + lacks + "\n";
  out += fmt::format("  compiler {}\n", __VERSION__);
  return out;
}

}  // namespace millrace::app
