// Cudnn: one device's handle, and the choice of a plan for every convolution. Choices are remembered by graph, in a
// file of the user too, so that runs do not measure again; and rank 0's count for all ranks, so that all run the same
// kernels. Must outlive the ops made with it. One thread at a time.
#pragma once
#include <filesystem>
#include <functional>

#include "block.hpp"
#include "cudnn_graph.hpp"
#include "plan_cache.hpp"

namespace millrace::cuda::cudnn {

struct Options {
  PlanRules rules;
  // Time the candidates on the device; else take cuDNN's first. Which kernel is fastest may differ from run to run, and
  // with it the last digits: the kept choices count among the versions that a run repeats bit for bit with.
  bool tune = true;
  std::size_t candidates = 8;  // of each graph; more find a better one now and then and take longer the first time
  bool keep = true;            // read and write the user's cache file; only rank 0 does
  int rank = 0;
  // Rank 0's text to every rank. Set, the making of a convolution that is not yet known is collective: all ranks make
  // the same ones in the same order. Unset, every rank chooses for itself.
  std::function<std::string(const std::string&)> broadcast;
};

struct Choice {
  Plan plan;
  double seconds = 0;  // 0: not timed
};

class Cudnn {
 public:
  Cudnn(const Context&, const Options&);  // the current device, on the context's stream
  // A device described by cuDNN's JSON, for tests: plans are made, nothing runs.
  Cudnn(const std::string& device_properties, const Options&);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  cudnnHandle_t handle() const { return handle_; }
  const Options& options() const { return options_; }
  std::optional<Choice> choose(const ConvProblem&);  // nullopt: no engine within the rules
  // Of the choice, the same on every rank; nullopt as above.
  std::optional<double> seconds(const ConvProblem&);
  PlanCache& cache() { return cache_; }
  void save();  // the cache file, on rank 0; otherwise done at the end

 private:
  bool times() const { return options_.tune && handle_; }
  PlanEntry entry(const ConvProblem&);
  PlanEntry select(const ConvProblem&);
  PlanEntry shared(const std::string& key, PlanEntry mine) const;
  Stream stream_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  Options options_;
  Target target_;
  PlanCache cache_;
  std::filesystem::path file_;
  bool warned_ = false;
};

// Median seconds of one run of every plan, by events on the stream; infinity for one that fails. Buffers are of the
// real size and random: zeros would make kernels look faster.
std::vector<double> time_plans(cudnnHandle_t, Stream, const ConvProblem&, std::vector<Call>&);

}  // namespace millrace::cuda::cudnn
