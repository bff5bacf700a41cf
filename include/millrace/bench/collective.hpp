// Measures all-reduces of a collective, and MPI's own in the same run.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/collective.hpp"

namespace millrace {

struct AllReduceTiming {
  std::size_t bytes = 0;
  double seconds = 0, mpi_seconds = 0;  // medians; mpi_seconds is 0 if MPI was not measured
};

// All-reduces float32 values in place, for each size in bytes. The collective's all-reduce and, if beside_mpi is set,
// MPI_Allreduce alternate. device: the device on whose streams the collective runs; null: it runs on the host.
// Collective.
std::vector<AllReduceTiming> bench_all_reduce(World&, Collective&, const std::vector<std::size_t>& sizes, int repeats,
                                              bool beside_mpi = true, Device* device = nullptr);
std::string str(const std::vector<AllReduceTiming>&);

}  // namespace millrace
