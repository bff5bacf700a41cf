// What the environment of a rank says about the program that started it: mpirun, or Slurm's srun.
#pragma once
#include <functional>
#include <string>

namespace millrace {

using EnvironmentLookup = std::function<const char*(const char*)>;  // std::getenv, or a fake one in tests

// Why MPI_Init would abort, or start N separate runs of one rank: srun started several tasks without PMIx. "" if there
// is no such problem. open_mpi: whether the MPI library is Open MPI, which Debian and others build without PMI-1 and
// PMI-2; MILLRACE_PMI=allow says that it has them.
std::string launch_problem(const EnvironmentLookup&, bool open_mpi);

// This process's rank according to its launcher; 0 if that is unknown. Before MPI starts, nothing else is known.
int launcher_rank();
int job_ranks();          // 0 if unknown
int job_ranks_of_host();  // how many of them should be on this host; 0 if unknown
// For tests: MILLRACE_TEST_RANKS_PER_HOST=N makes each N ranks of one machine count as a host. N; 0: off.
int ranks_of_simulated_host();
int simulated_host();  // of this process; 0 if hosts are not simulated

// What gives a rank more cores: "add --bind-to none" if mpirun has bound it, "raise --cpus-per-task" under Slurm.
std::string advice_for_more_cores(const EnvironmentLookup&);

}  // namespace millrace
