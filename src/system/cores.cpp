#include "millrace/system/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace millrace {

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

int usable_cores() { return int(allowed_cpus().size()); }

void reexec_with_passive_openmp(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT") || std::getenv("MILLRACE_REEXECUTED")) return;
  // Measured with two ranks of two spinning threads each on two cores: 4.6 instead of 1,100 GFLOP/s. A short spin costs
  // nothing when cores are free and little when they are not. Where each rank has its own cores, a longer spin (half a
  // millisecond) avoids waking threads for every operation, which takes up to a millisecond on a virtual machine.
  const char* local = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"})
    if (!local) local = std::getenv(name);
  const long ranks = local ? std::strtol(local, nullptr, 10) : 1;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", 2 * ranks <= ::sysconf(_SC_NPROCESSORS_ONLN) ? "30000" : "1000", 1);
  ::setenv("MILLRACE_REEXECUTED", "1", 1);
  // The process is named after the last part of the path, and killall looks for that name. The link leads to the
  // program even if its file was replaced meanwhile. Without /proc the run continues, slower where cores are shared.
  const char* const link = "/proc/self/exe";
  char path[PATH_MAX];
  if (const ssize_t length = ::readlink(link, path, sizeof path - 1); length > 0) {
    path[length] = '\0';
    ::execv(path, argv);
  }
  ::execv(link, argv);
}

}  // namespace millrace
