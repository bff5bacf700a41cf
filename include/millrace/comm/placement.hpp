// Where threads run: ranks of one host share its cores. Each rank gets an equal, disjoint slice of the cores that the
// process may use; compute threads fill it, loader workers and the communication thread share it.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace {

struct Placement {
  int cores = 1;                // of this rank's slice
  int compute_threads = 1;      // OpenMP threads
  int workers = 1;              // loader threads
  bool spare_core = false;      // a core is free for the communication thread
  bool oversubscribed = false;  // more ranks than cores: nothing may spin
  std::vector<int> cpus;        // this rank's slice
  std::string warning;          // "rank 0 is bound to one core of 8 ...", the same on all ranks; or empty
  std::string str() const;
};

// Reads the affinity masks of all ranks of the host (collective). compute_threads and workers of 0 mean: choose.
Placement plan_placement(World&, int compute_threads, int workers);
}  // namespace millrace
