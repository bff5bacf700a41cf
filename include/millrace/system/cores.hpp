// The CPU cores that this process may use, and how the threads of an OpenMP runtime wait on them.
#pragma once
#include <string>
#include <vector>

namespace millrace {

std::vector<int> allowed_cpus();  // from the affinity mask; never empty
int usable_cores();               // their number
// Limits this thread, and the threads that it creates later, to these cores. Without effect if Linux refuses.
void allow_cpus(const std::vector<int>&);
// The numbers of a list of Linux such as "0-3,8-11"; empty if it is none.
std::vector<int> parse_cpu_list(const std::string&);

// For a oneDNN with another OpenMP runtime than libgomp, whose regions do not run on the program's own threads
// (cpu/common/openmp_entry_points.cpp). A runtime reads OMP_WAIT_POLICY only when it is loaded. Unless OMP_WAIT_POLICY
// or GOMP_SPINCOUNT is set, this function sets OMP_WAIT_POLICY=passive and a GOMP_SPINCOUNT that depends on the cores
// of a rank, and re-executes the program once. Call it first in main.
void reexec_with_passive_openmp(char** argv);

}  // namespace millrace
