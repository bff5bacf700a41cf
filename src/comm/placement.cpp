#include "millrace/comm/placement.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace millrace {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &set)) cpus.push_back(c);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::string list(const std::vector<int>& cpus) {
  std::string out;
  for (std::size_t i = 0; i < cpus.size(); ++i) out += (i ? "," : "") + std::to_string(cpus[i]);
  return out;
}

std::vector<int> parse(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) cpus.push_back(std::atoi(one.c_str()));
  return cpus;
}

}  // namespace

int usable_cores() { return int(allowed_cpus().size()); }

std::string Placement::str() const {
  return cat("cpus ", list(cpus), ": ", compute_threads,
             compute_threads == 1 ? " compute thread, " : " compute threads, ", workers,
             workers == 1 ? " loader worker" : " loader workers", shared_cores ? ", cores shared with other ranks" : "",
             spare_core ? ", a core free for communication" : "");
}

Placement plan_placement(World& world, int compute_threads, int workers) {
  Placement out;
  const std::vector<int> mine = allowed_cpus();
  const auto all = world.gather(cat(world.node(), " ", list(mine)));
  int sharing = 0, before = 0;  // ranks of this host with the very same cores, and those of them with a lower number
  for (int r = 0; r < world.size(); ++r) {
    const std::string& text = all[std::size_t(r)];
    const auto space = text.find(' ');
    if (std::atoi(text.c_str()) != world.node() || parse(text.substr(space + 1)) != mine) continue;
    ++sharing, before += r < world.rank();
  }
  const std::size_t n = mine.size(), s = std::size_t(std::max(1, sharing)), b = std::size_t(before);
  if (n >= s)
    out.cpus.assign(mine.begin() + std::ptrdiff_t(n * b / s), mine.begin() + std::ptrdiff_t(n * (b + 1) / s));
  else
    out.cpus = {mine[b % n]}, out.shared_cores = true;
  out.cores = int(out.cpus.size());
  out.compute_threads = compute_threads > 0 ? compute_threads : out.cores;
  out.workers = workers > 0 ? workers : std::clamp(out.cores / 4, 1, 4);
  out.spare_core = out.cores > out.compute_threads;
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (mine.size() == 1 && online >= 2 * world.local_size())
    out.warning =
        cat("this rank is bound to one core of ", online, " (mpirun binds small jobs to cores). add --bind-to none");
  return out;
}

void reexec_with_passive_openmp(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT") || std::getenv("MILLRACE_REEXECUTED")) return;
  // Two ranks of two spinning threads each on two cores: 4.6 instead of 1,100 GFLOP/s. A short spin costs nothing when
  // cores are free and little when they are not. Where each rank has cores of its own a longer one (half a millisecond)
  // spares waking threads up for every operation, which takes a virtual machine up to a millisecond.
  const char* local = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"})
    if (!local) local = std::getenv(name);
  const long ranks = local ? std::strtol(local, nullptr, 10) : 1;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", 2 * ranks <= ::sysconf(_SC_NPROCESSORS_ONLN) ? "30000" : "1000", 1);
  ::setenv("MILLRACE_REEXECUTED", "1", 1);
  ::execv("/proc/self/exe", argv);  // without /proc the run goes on, slower where cores are shared
}

}  // namespace millrace
