// How fast sums are, beside MPI's own, in one run.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/collective.hpp"

namespace millrace {

struct AllReduceTiming {
  std::size_t bytes = 0;
  double seconds = 0, mpi_seconds = 0;  // medians; mpi_seconds 0 without MPI
};

// Float32 sums in place of each size, the collective's and, unless it is not wanted, MPI_Allreduce's in turns.
// device: whose lanes the collective works on, where it is not the host. Collective.
std::vector<AllReduceTiming> bench_all_reduce(World&, Collective&, const std::vector<std::size_t>& sizes, int repeats,
                                              bool beside_mpi = true, Device* device = nullptr);
std::string str(const std::vector<AllReduceTiming>&);

}  // namespace millrace
