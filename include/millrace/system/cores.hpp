// The CPU cores that this process may use, and how OpenMP threads wait on them.
#pragma once
#include <vector>

namespace millrace {

std::vector<int> allowed_cpus();  // from the affinity mask; never empty
int usable_cores();               // their number

// libgomp reads OMP_WAIT_POLICY only when it is loaded. Unless OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, this function
// sets OMP_WAIT_POLICY=passive and a GOMP_SPINCOUNT that depends on the cores of a rank, and re-executes the program
// once. Call it first in main.
void reexec_with_passive_openmp(char** argv);

}  // namespace millrace
