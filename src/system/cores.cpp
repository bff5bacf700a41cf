#include "millrace/system/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <sstream>

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

void allow_cpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(std::size_t(cpu), &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
}

std::vector<int> parse_cpu_list(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    int first = 0, last = 0;
    const int numbers = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (numbers < 1 || first < 0) return {};
    if (numbers == 1) last = first;
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

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
