// PlanSelector: chooses the plan (kernel) of a library for each problem once. It caches choices by the key of the
// problem. Timed choices are also stored in a cache file of the user, so that later runs need not time again. Rank 0
// chooses for all ranks, so that all ranks run the same kernels and need the same memory. One thread at a time.
#pragma once
#include <functional>

#include "millrace/plans/plan_cache.hpp"

namespace millrace {

struct PlanSelectorOptions {
  // Time the candidates on the device; false: use the library's first proposal. The fastest kernel may differ from run
  // to run, and so may the last digits of the results. To repeat a run bit for bit, one needs the same cache file.
  bool autotune = true;
  bool keep = true;  // read and write the user's cache file; only rank 0 does
  int rank = 0;
  // Sends the text of rank 0 to all ranks. If it is set, get() is collective for problems that are not cached: all
  // ranks must ask for the same problems in the same order. If it is not set, every rank chooses for itself.
  std::function<std::string(const std::string&)> broadcast = {};
};

class PlanSelector {
 public:
  // identity: what plans and their times depend on, besides the problem. file: the cache file; "": none. Collective if
  // options.broadcast is set.
  PlanSelector(const std::string& identity, const std::filesystem::path& file, const PlanSelectorOptions&);
  PlanSelector(const PlanSelector&) = delete;
  PlanSelector& operator=(const PlanSelector&) = delete;

  // The plan of a problem, the same on every rank. select() makes the choice if none is cached; it is called on rank 0
  // only, or on every rank without a broadcast.
  PlanEntry get(const std::string& problem, const std::function<PlanEntry()>& select);
  bool timing_enabled() const { return options_.autotune && timing_; }  // whether select() should time the candidates
  void set_timing(bool on) { timing_ = on; }  // choices made while it is off are cached separately
  PlanCache& cache() { return cache_; }

 private:
  PlanEntry shared(const std::string& key, PlanEntry mine) const;
  PlanSelectorOptions options_;
  std::filesystem::path file_;
  PlanCache cache_;
  bool timing_ = true;
};

}  // namespace millrace
