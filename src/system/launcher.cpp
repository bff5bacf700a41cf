#include "millrace/system/launcher.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace millrace {
namespace {

int first_number(std::initializer_list<const char*> variables) {
  for (const char* name : variables)
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

}  // namespace

std::string launch_problem(const EnvironmentLookup& env, bool open_mpi) {
  const char* const tasks = env("SLURM_STEP_NUM_TASKS");
  if (!env("SLURM_STEP_ID") || !env("SLURM_PROCID") || !tasks || std::atoi(tasks) < 2) return "";
  if (env("OMPI_COMM_WORLD_SIZE") || env("PMIX_RANK")) return "";
  if (!env("PMI_RANK") && !env("PMI_FD"))
    return fmt::format("srun started {} tasks without PMIx, so MPI cannot connect them. use srun --mpi=pmix, or mpirun",
                       tasks);
  const char* const allowed = env("MILLRACE_PMI");
  if (!open_mpi || (allowed && std::string_view(allowed) == "allow")) return "";
  return fmt::format(
      "srun started {} tasks with PMI-1 or PMI-2, which Open MPI rarely has. use srun --mpi=pmix, or mpirun; if this "
      "Open MPI was built --with-pmi, set MILLRACE_PMI=allow",
      tasks);
}

int launcher_rank() { return first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}); }

int job_ranks() { return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}); }

int job_ranks_of_host() {
  if (const int ranks = ranks_of_simulated_host(); ranks > 0)
    return std::min(ranks, job_ranks() - simulated_host() * ranks);
  return first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"});
}

int ranks_of_simulated_host() { return first_number({"MILLRACE_TEST_RANKS_PER_HOST"}); }

int simulated_host() {
  const int ranks = ranks_of_simulated_host();
  return ranks > 0 ? launcher_rank() / ranks : 0;
}

std::string advice_for_more_cores(const EnvironmentLookup& env) {
  const char* policy = env("OMPI_MCA_hwloc_base_binding_policy");  // what --bind-to sets
  const bool unbound = policy && std::string_view(policy).starts_with("none");
  if (env("OMPI_COMM_WORLD_SIZE") && !unbound) return "add --bind-to none";
  return env("SLURM_JOB_ID") ? "raise --cpus-per-task" : "let it use more cores";
}

}  // namespace millrace
