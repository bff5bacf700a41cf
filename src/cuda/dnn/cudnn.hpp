// Cudnn: one device's handle, and the choice of a plan for every convolution. Must outlive the ops made with it. One
// thread at a time.
#pragma once
#include <map>

#include "cuda/dnn/cudnn_graph.hpp"
#include "cuda/dnn/plan_selector.hpp"
#include "cuda/runtime/block.hpp"

namespace millrace::cuda::cudnn {

struct Options {
  PlanRules rules;
  std::size_t candidates = 8;  // of each graph; more find a better one now and then and take longer the first time
  PlanSelectorOptions choices;
};

struct Choice {
  Plan plan;
  double seconds = 0;  // 0: not timed
};

class Cudnn {
 public:
  Cudnn(const LaunchContext&, const Options&);  // the current device, on the context's stream
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
  PlanSelector& choices() { return choices_; }
  // Problems by their keys for which no engine that is compiled ahead was found here, and what is proposed besides.
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

// Median seconds of one run of every plan, by events on the stream; infinity for one that fails or is far behind.
// Buffers are of the real size and random: zeros would make kernels look faster.
std::vector<double> time_plans(cudnnHandle_t, StreamHandle, const ConvProblem&, std::vector<Call>&);

}  // namespace millrace::cuda::cudnn
