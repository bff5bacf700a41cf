// PlanChoices: a library's plan for every problem, chosen once. Remembered by the problem's key, the timed ones in a
// file of the user too, so that runs do not measure again; and rank 0's count for all ranks, so that all run the same
// kernels and plan the same memory. One thread at a time.
#pragma once
#include <functional>

#include "cuda/dnn/plan_cache.hpp"

namespace millrace::cuda {

struct PlanSelectorOptions {
  // Time the candidates on the device; else take the library's first. Which kernel is fastest may differ from run to
  // run, and with it the last digits: the kept choices count among the versions that a run repeats bit for bit with.
  bool autotune = true;
  bool keep = true;  // read and write the user's cache file; only rank 0 does
  int rank = 0;
  // Rank 0's text to every rank. Set, the choice of a plan that is not yet known is collective: all ranks ask for the
  // same ones in the same order. Unset, every rank chooses for itself.
  std::function<std::string(const std::string&)> broadcast = {};
};

class PlanSelector {
 public:
  // Of this version of a library ("cudnn") on the current device. Collective with a broadcast.
  static PlanSelector of_current_device(const std::string& library, std::size_t version, const PlanSelectorOptions&);
  // file: "" for none.
  PlanSelector(const std::string& identity, const std::filesystem::path& file, const PlanSelectorOptions&);
  PlanSelector(const PlanSelector&) = delete;
  PlanSelector& operator=(const PlanSelector&) = delete;

  // The same on every rank. select: makes the choice where there is none yet; called where it counts alone.
  PlanEntry get(const std::string& problem, const std::function<PlanEntry()>& select);
  bool timing_enabled() const { return options_.autotune && timing_; }  // whether select() is to time candidates
  void set_timing(bool on) { timing_ = on; }  // those chosen while it is off are remembered apart
  PlanCache& cache() { return cache_; }

 private:
  PlanEntry shared(const std::string& key, PlanEntry mine) const;
  PlanSelectorOptions options_;
  std::filesystem::path file_;
  PlanCache cache_;
  bool timing_ = true;
};

}  // namespace millrace::cuda
