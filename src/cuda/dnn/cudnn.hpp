// Cudnn: the cuDNN handle of a device, and the choice of a plan for every convolution. It must outlive the operations
// that are made with it. One thread at a time.
#pragma once
#include <map>

#include "cuda/block/block.hpp"
#include "cuda/dnn/cudnn_graph.hpp"
#include "cuda/plans/plan_selector.hpp"

namespace millrace::cuda::cudnn {

struct Options {
  PlanRules rules;
  std::size_t candidates =
      8;  // timed for each graph; more sometimes find a faster plan, but take longer in the first run
  PlanSelectorOptions choices;
  double copy_bytes_per_second = 0;  // copy_bytes_per_second(); 0: not known
};

struct Choice {
  Plan plan;
  double seconds = 0;  // 0: not timed
};

class Cudnn {
 public:
  Cudnn(const LaunchContext&, const Options&);  // uses the current device and the stream of the context
  // For tests: a device described in cuDNN's JSON format. Plans can be made, but not run.
  Cudnn(const std::string& device_properties, const Options&);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  cudnnHandle_t handle() const { return handle_; }
  const Options& options() const { return options_; }
  std::optional<Choice> choose(const ConvProblem&);  // nullopt: no engine obeys the rules
  // The time of the chosen plan, the same on every rank; nullopt as above.
  std::optional<double> seconds(const ConvProblem&);
  PlanSelector& choices() { return choices_; }
  // The problems, by their keys, for which cuDNN has no precompiled engine, with statistics of its runtime-compiled
  // ones.
  const std::map<std::string, ConvGraph::RuntimeCompiledEngines>& without_precompiled_engine() const {
    return without_precompiled_engine_;
  }

 private:
  PlanEntry entry(const ConvProblem&);
  PlanEntry select(const ConvProblem&);
  StreamHandle stream_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  Options options_;
  DeviceTarget target_;
  PlanSelector choices_;
  std::map<std::string, ConvGraph::RuntimeCompiledEngines> without_precompiled_engine_;
  bool warned_ = false;
};

// The median seconds of one run of each plan, by time_on_device(); infinity for a plan that fails or is much slower
// than the best. The buffers have the real size and random contents, because kernels run faster on zeros.
std::vector<double> time_plans(cudnnHandle_t, StreamHandle, const ConvProblem&, std::vector<Call>&);

}  // namespace millrace::cuda::cudnn
