// Divides the cores of a host among its ranks. Ranks that may use the same cores get equal, disjoint slices of them.
// By default, a rank has one compute thread per core of its slice; loader workers and the communication thread share
// these cores.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"

namespace millrace {

struct Placement {
  int cores = 1;                // in this rank's slice
  int compute_threads = 1;      // of a rank
  int workers = 1;              // loader threads
  bool spare_core = false;      // the slice has more cores than compute threads
  bool oversubscribed = false;  // there are more ranks than cores, so waiting threads must not spin
  std::vector<int> cpus;        // this rank's slice
  std::vector<int> near_cpus;   // cores near the rank's GPU that it should keep to; empty: it keeps its affinity mask
  std::string warning;          // "rank 0 is bound to one core of 8 ...", the same on all ranks; empty: none
  std::string str() const;
};

// Plans the placement from the affinity masks of all ranks; collective. compute_threads or workers = 0: choose the
// number automatically. near: the cores near the rank's GPU, if they are known. Slices are taken from them if each rank
// of the host gets at least as many cores as otherwise: with one rank on a host of two sockets, loader workers need the
// cores of both.
Placement plan_placement(World&, int compute_threads, int workers, const std::vector<int>& near = {});
}  // namespace millrace
