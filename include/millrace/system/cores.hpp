// The processor cores that this process may use, and how OpenMP threads wait on them.
#pragma once
#include <vector>

namespace millrace {

std::vector<int> allowed_cpus();  // by the affinity mask; never empty
// libgomp reads OMP_WAIT_POLICY only when it loads: unless it or GOMP_SPINCOUNT is set, sets OMP_WAIT_POLICY=passive
// and a GOMP_SPINCOUNT by how many cores each rank has, and re-executes the program once. Call first in main.
void reexec_with_passive_openmp(char** argv);
int usable_cores();

}  // namespace millrace
