#include <cstdio>
#include <cstdlib>

#include "app/commands.hpp"
#include "app/failure.hpp"
#include "millrace/base/log.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/config/options.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/system/cores.hpp"
#include "millrace/system/signals.hpp"

using namespace millrace;
using namespace millrace::app;

namespace {

// Before MPI starts, a rank knows itself only by its launcher's word.
bool speaks_first() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
  return true;
}

std::string overview() {
  std::string out =
      version_text() + ": trains neural networks on HDF5 data under MPI\n\nusage: millrace COMMAND [options]\n\n";
  for (const Command& command : commands())
    out += cat("  ", command.name, std::string(9 - std::string(command.name).size(), ' '), command.summary, "\n");
  return out +
         "\nmillrace COMMAND --help says more; millrace --version. Several ranks: mpirun -n 4 millrace train -c FILE\n";
}

int answer(const std::string& text, FILE* where = stdout, Exit code = Exit::ok) {
  if (speaks_first()) std::fputs(text.c_str(), where);
  return int(code);
}

}  // namespace

int main(int argc, char** argv) {
  reexec_with_passive_openmp(argv);
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") return answer(overview());
  if (name == "--version") return answer(version_text() + "\n");
  if (name == "docs-configuration") return answer(configuration_page());  // the text of docs/configuration.md
  const Command* command = nullptr;
  for (const Command& each : commands())
    if (name == each.name) command = &each;
  if (!command)
    return answer(cat("error: '", name, "' is no command. millrace --help lists them\n"), stderr, Exit::config);
  for (int i = 2; i < argc; ++i)
    if (std::string(argv[i]) == "--help" || std::string(argv[i]) == "-h") return answer(command->help());

  if (command->without_mpi && !speaks_first()) return int(Exit::ok);  // under mpirun one of them is enough
  install_stop_signals();
  receive_stop_signals_in_thread();
  std::unique_ptr<World> started;
  try {
    io::initialize_hdf5();
    started = command->without_mpi ? solo_world() : mpi_world(&argc, &argv);
  } catch (const Error& error) {
    return answer(cat("error: ", error.what(), "\n"), stderr, error.code());
  }
  World& world = end_all_ranks_on_failure(std::move(started));
  log::set_rank(world.rank(), world.size(), world.host());
  const Exit code = command->run(world, Arguments(argv + 2, argv + argc));
  release_world();
  return int(code);
}
