// Cudnn: the cuDNN handle of a device, and the choice of a plan for every problem. It must outlive the operations
// that are made with it. One thread at a time.
#pragma once
#include <map>
#include <set>

#include "cuda/block/block.hpp"
#include "cuda/dnn/cudnn_graph.hpp"
#include "millrace/plans/plan_selector.hpp"

namespace millrace::cuda::cudnn {

struct Options {
  PlanRules rules;
  std::size_t candidates =
      8;  // timed for each graph; more sometimes find a faster plan, but take longer in the first run
  PlanSelectorOptions choices = {};
  double copy_bytes_per_second = 0;  // copy_bytes_per_second(); 0: not known
  int compute_capability = 90;       // of the device; 90 for 9.0
};

struct Choice {
  std::shared_ptr<const Plan> plan;
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
  std::optional<Choice> choose(const Problem&);  // nullopt: no engine obeys the rules
  // The time of the chosen plan, the same on every rank; nullopt as above.
  std::optional<double> seconds(const Problem&);
  PlanSelector& choices() { return choices_; }
  void warn_once(const std::string&);  // operations of a network are often alike
  // The problems, by their keys, for which cuDNN has no plan, with statistics of its runtime-compiled engines.
  const std::map<std::string, Graph::RuntimeCompiledEngines>& without_plan() const { return without_plan_; }

 private:
  PlanEntry entry(const Problem&);
  PlanEntry select(const Problem&);
  StreamHandle stream_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  Options options_;
  DeviceTarget target_;
  PlanSelector choices_;
  // By the keys of problems and the texts of plans. Equal operations share a plan, because cuDNN would compile some of
  // them again.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Plan>> plans_;
  std::map<std::string, Graph::RuntimeCompiledEngines> without_plan_;
  std::set<std::string> warnings_;
};

// The median seconds of one run of each plan, by time_on_device(); infinity for a plan that fails or is much slower
// than the best. The buffers have the real size and random contents, because kernels run faster on zeros.
std::vector<double> time_plans(cudnnHandle_t, StreamHandle, const Problem&, std::vector<Call>&);

}  // namespace millrace::cuda::cudnn
