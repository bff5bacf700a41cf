#include "cuda/dnn/cudnn.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>

#include "cuda/errors/check.hpp"
#include "cuda/plans/plan_identity.hpp"
#include "millrace/base/log.hpp"
#include "millrace/plans/time_candidates.hpp"

namespace millrace::cuda::cudnn {
namespace {

cudnnHandle_t make_handle(StreamHandle stream) {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate", Exit::config);
  if (const auto status = cudnnSetStream(handle, stream); status != CUDNN_STATUS_SUCCESS) {
    cudnnDestroy(handle);
    check(status, "cudnnSetStream", Exit::config);
  }
  return handle;
}

// cuDNN loads NVRTC for each graph that it could compile at run time, and unloads it again, which took nearly half of
// the time of making plans. One more reference keeps it loaded. If it is not found here, cuDNN does as before.
void keep_nvrtc_loaded() {
  static const void* const kept = [] {
    void* const found = dlopen(MILLRACE_NVRTC, RTLD_LAZY | RTLD_LOCAL);
    return found ? found : dlopen(MILLRACE_CUBLASLT_FOLDER "/" MILLRACE_NVRTC, RTLD_LAZY | RTLD_LOCAL);
  }();
  (void)kept;
}

PlanSelectorOptions untimed(PlanSelectorOptions options) {
  options.autotune = false;
  return options;
}

}  // namespace

Cudnn::Cudnn(const LaunchContext& context, const Options& options)
    : stream_(context.stream),
      handle_(make_handle(context.stream)),
      options_(options),
      target_(handle_),
      choices_(make_selector(PlanIdentity::of_current_device("cudnn", cudnnGetVersion(), options.candidates),
                             options.choices)) {
  keep_nvrtc_loaded();
}

Cudnn::Cudnn(const std::string& device_properties, const Options& options)
    : options_(options),
      target_(DeviceTarget::described_by(device_properties)),
      choices_(device_properties, "", untimed(options.choices)) {
  keep_nvrtc_loaded();
}

Cudnn::~Cudnn() {
  plans_.clear();  // before the handle that they were made with
  if (handle_) cudnnDestroy(handle_);
}

// Returns the same on every rank.
PlanEntry Cudnn::entry(const Problem& problem) {
  return choices_.get(fmt::format("{} {}", problem.key, options_.rules.key()), [&] { return select(problem); });
}

std::optional<double> Cudnn::seconds(const Problem& problem) {
  const PlanEntry entry = this->entry(problem);
  if (entry.plan.empty()) return std::nullopt;
  return entry.seconds;
}

std::optional<Choice> Cudnn::choose(const Problem& problem) {
  const PlanEntry entry = this->entry(problem);
  if (entry.plan.empty()) return std::nullopt;
  auto& known = plans_[{problem.key, entry.plan}];
  if (!known)
    if (auto plan = Plan::from_json(target_, entry.plan)) known = std::make_shared<const Plan>(std::move(*plan));
  if (known) return Choice{known, entry.seconds};
  if (warnings_.insert("cached kernels").second)
    log::local(
        fmt::format("warning: a cached kernel of cuDNN does not load on this GPU ({}). cuDNN's first proposal is used",
                    last_error()));
  auto plans = problem.make_graph(target_)->plans(options_.rules, 1);
  if (plans.empty()) return std::nullopt;
  known = std::make_shared<const Plan>(std::move(plans.front()));
  return Choice{known, entry.seconds};  // all ranks decide by the time that rank 0 measured
}

void Cudnn::warn_once(const std::string& line) {
  if (warnings_.insert(line).second) log::warn(line);
}

PlanEntry Cudnn::select(const Problem& problem) {
  const std::size_t usual = problem.candidates > 0 ? problem.candidates : options_.candidates;
  const std::size_t max_plans = choices_.timing_enabled() ? usual : 1;
  const auto graph = problem.make_graph(target_);
  auto plans = graph->plans(options_.rules, max_plans);
  if (plans.empty()) {
    without_plan_[problem.key] = graph->runtime_compiled(options_.rules);
    return {};
  }
  std::vector<Call> calls;
  for (Plan& plan : plans) calls.emplace_back(std::make_shared<const Plan>(std::move(plan)), problem);
  PlanEntry entry;
  std::size_t best = 0;
  if (max_plans > 1 && calls.size() > 1) {
    const auto seconds = time_plans(handle_, stream_, problem, calls);
    best = choose_candidate(seconds);
    if (best < seconds.size()) entry.seconds = seconds[best];
    if (best == seconds.size()) best = 0;  // not timed
  }
  entry.plan = calls[best].plan().json();
  plans_[{problem.key, entry.plan}] = calls[best].shared_plan();
  return entry;
}

}  // namespace millrace::cuda::cudnn
