#include "millrace/system/launcher.hpp"

#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace launcher_test {

using Environment = std::map<std::string, std::string>;

EnvironmentLookup lookup(const Environment& of) {
  return [&of](const char* name) {
    const auto it = of.find(name);
    return it == of.end() ? nullptr : it->second.c_str();
  };
}

TEST(Launcher, SrunWithoutPmixIsRefused) {
  Environment job{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_EQ(launch_problem(lookup(job), true),
            "srun started 2 tasks without PMIx, so MPI cannot connect them. use srun --mpi=pmix, or mpirun");
  job["PMI_RANK"] = "1";
  EXPECT_NE(launch_problem(lookup(job), true).find("srun --mpi=pmix"), std::string::npos);
  EXPECT_EQ(launch_problem(lookup(job), false), "") << "MPICH understands PMI-2";
  job["MILLRACE_PMI"] = "allow";
  EXPECT_EQ(launch_problem(lookup(job), true), "");
}

TEST(Launcher, OtherStartsAreAccepted) {
  const Environment step{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"}) {
    Environment with = step;
    with[name] = "2";
    EXPECT_EQ(launch_problem(lookup(with), true), "") << name;
  }
  Environment single = step;
  single["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(launch_problem(lookup(single), true), "");
  const Environment none;
  EXPECT_EQ(launch_problem(lookup(none), true), "");
}

TEST(Launcher, AdviceForMoreCoresNamesTheOptionOfTheLauncher) {
  Environment e{{"SLURM_JOB_ID", "7"}};
  EXPECT_EQ(advice_for_more_cores(lookup(e)), "raise --cpus-per-task");
  e["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_EQ(advice_for_more_cores(lookup(e)), "add --bind-to none");
  e["OMPI_MCA_hwloc_base_binding_policy"] = "none";
  EXPECT_EQ(advice_for_more_cores(lookup(e)), "raise --cpus-per-task");
}

}  // namespace launcher_test
}  // namespace millrace
