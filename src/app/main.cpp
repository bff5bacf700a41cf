#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "app/commands.hpp"
#include "app/failure.hpp"
#include "millrace/base/log.hpp"
#include "millrace/comm/collective.hpp"
#include "millrace/config/options.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/system/cores.hpp"
#include "millrace/system/first_report.hpp"
#include "millrace/system/launcher.hpp"
#include "millrace/system/signals.hpp"
#include "millrace/watchdog/watchdog.hpp"

using namespace millrace;
using namespace millrace::app;

namespace {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // code of a sanitizer must run first
// Runs before the constructors of the libraries, which take most of the time before main.
[[gnu::section(".preinit_array"), gnu::used]] void (*const prepare_before_constructors)() = prepare_signals;
#endif

std::string overview() {
  std::string out =
      version_text() + ": trains neural networks on HDF5 data under MPI\n\nusage: millrace COMMAND [options]\n\n";
  for (const Command& command : commands())
    out += fmt::format("  {}{}{}\n", command.name, std::string(9 - std::string(command.name).size(), ' '),
                       command.summary);
  return out +
         "\nmillrace COMMAND --help prints the options of a command, --help-all also all keys; millrace --version the "
         "version.\n"
         "Several ranks: mpirun -n 4 millrace train -c FILE\n";
}

int answer(const std::string& text, FILE* where = stdout, Exit code = Exit::ok) {
  if (launcher_rank() == 0) std::fputs(text.c_str(), where);
  return int(code);
}

void start_watchdog(const Arguments& arguments) {
  const char* const of_test = std::getenv("MILLRACE_TEST_TIMEOUT");  // for commands without keys
  watchdog::start(of_test ? std::atof(of_test) : CollectiveOptions{}.timeout_seconds);
  const watchdog::WaitScope waits(watchdog::Wait::file);
  if (const auto timeout = timeout_before_mpi(arguments); timeout && !of_test) watchdog::set_timeout(*timeout);
}

const Command* find_command(const std::string& name) {
  for (const Command& each : commands())
    if (name == each.name) return &each;
  return nullptr;
}

// The command that other programs call so; null: none.
const Command* find_foreign_command(const std::string& name) {
  static constexpr const char* meanings[][2] = {
      {"fit", "train"},        {"run", "train"},        {"evaluate", "eval"},     {"test", "eval"},
      {"validate", "eval"},    {"infer", "predict"},    {"inference", "predict"}, {"sample", "generate"},
      {"convert", "pack"},     {"import", "pack"},      {"prepare", "pack"},      {"show", "inspect"},
      {"info", "inspect"},     {"describe", "inspect"}, {"check", "plan"},        {"summary", "plan"},
      {"profile", "diagnose"}, {"search", "tune"},      {"sweep", "tune"},        {"slurm", "job"},
      {"sbatch", "job"},       {"monitor", "top"},      {"watch", "top"},         {"plot", "report"},
      {"benchmark", "bench"}};
  for (const auto& [other, ours] : meanings)
    if (name == other) return find_command(ours);
  return nullptr;
}

std::string unknown_command(const std::string& name) {
  const auto nearest = std::min_element(commands().begin(), commands().end(), [&](const Command& a, const Command& b) {
    return edit_distance(name, a.name) < edit_distance(name, b.name);
  });
  const Command* same = find_foreign_command(name);
  return fmt::format("error: unknown command '{}'. did you mean {}? millrace --help lists all commands\n", name,
                     same ? same->name : nearest->name);
}

// `millrace help` and `millrace help COMMAND`.
int answer_help(const char* name) {
  if (!name) return answer(overview());
  const Command* command = find_command(name);
  return command ? answer(command->help()) : answer(unknown_command(name), stderr, Exit::config);
}

bool has(int argc, char** argv, const std::string& option) {
  return std::find(argv + 1, argv + argc, option) != argv + argc;
}

}  // namespace

int main(int argc, char** argv) {
  prepare_signals();
  reexec_with_passive_openmp(argv);
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (has(argc, argv, "--help-all")) print_all_keys_in_help();
  if (name == "--help" || name == "-h" || name == "--help-all") return answer(overview());
  if (name == "help") return answer_help(argc > 2 ? argv[2] : nullptr);
  if (name == "--version") return answer(version_text() + "\n");
  if (name == "docs-configuration") return answer(configuration_page());
  const Command* command = find_command(name);
  if (!command) return answer(unknown_command(name), stderr, Exit::config);
  for (const char* option : {"--help", "-h", "--help-all"})
    if (has(argc, argv, option)) return answer(command->help());

  if (command->without_mpi && launcher_rank() != 0) return int(Exit::ok);  // under mpirun, one process does the work
  install_stop_signals();
  receive_stop_signals_in_thread();
  const Arguments arguments(argv + 2, argv + argc);
  if (!command->without_mpi) start_watchdog(arguments);
  std::unique_ptr<World> started;
  try {
    io::initialize_hdf5();
    started = command->without_mpi ? solo_world() : mpi_world(&argc, &argv);
  } catch (const Error& error) {
    const bool reports = launcher_rank() == 0 && claim_report_of_host(Reporter::failure);  // not if the watchdog does
    if (!reports) return int(error.code());
    return answer(fmt::format("error: {}\n", error.what()), stderr, error.code());
  }
  World& world = end_all_ranks_on_failure(std::move(started));
  log::set_rank(world.rank(), world.size(), world.host());
  const watchdog::PartScope part(watchdog::Part::setup);
  const Exit code = command->run(world, arguments);
  release_world();
  return int(code);
}
