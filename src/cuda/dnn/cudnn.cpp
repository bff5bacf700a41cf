#include "cuda/dnn/cudnn.hpp"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>

#include "cuda/errors/check.hpp"
#include "cuda/plans/time_candidates.hpp"
#include "millrace/base/log.hpp"

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
      choices_(PlanIdentity::of_current_device("cudnn", cudnnGetVersion(), options.candidates), options.choices) {}

Cudnn::Cudnn(const std::string& device_properties, const Options& options)
    : options_(options),
      target_(DeviceTarget::described_by(device_properties)),
      choices_(device_properties, "", untimed(options.choices)) {}

Cudnn::~Cudnn() {
  if (handle_) cudnnDestroy(handle_);
}

// Returns the same on every rank.
PlanEntry Cudnn::entry(const ConvProblem& problem) {
  return choices_.get(fmt::format("{} {}", problem.key(), options_.rules.key()), [&] { return select(problem); });
}

std::optional<double> Cudnn::seconds(const ConvProblem& problem) {
  const PlanEntry entry = this->entry(problem);
  if (entry.plan.empty()) return std::nullopt;
  return entry.seconds;
}

std::optional<Choice> Cudnn::choose(const ConvProblem& problem) {
  const PlanEntry entry = this->entry(problem);
  if (entry.plan.empty()) return std::nullopt;
  if (auto plan = Plan::from_json(target_, entry.plan)) return Choice{std::move(*plan), entry.seconds};
  if (!warned_)
    log::local(fmt::format(
        "warning: a cached convolution kernel does not load on this GPU ({}). cuDNN's first proposal is used",
        last_error()));
  warned_ = true;
  auto plans = ConvGraph(target_, problem).plans(options_.rules, 1);
  if (plans.empty()) return std::nullopt;
  return Choice{std::move(plans.front()), 0};
}

PlanEntry Cudnn::select(const ConvProblem& problem) {
  // With few channels, the fast engines are far down in cuDNN's list.
  const std::size_t max_plans = !choices_.timing_enabled() ? 1 : problem.src[-1] < 8 ? 32 : options_.candidates;
  const ConvGraph graph(target_, problem);
  auto plans = graph.plans(options_.rules, max_plans);
  if (plans.empty() || plans.front().runtime_compiled())
    without_precompiled_engine_[problem.key()] = graph.runtime_compiled(options_.rules);
  if (plans.empty()) return {};
  if (max_plans == 1 || plans.size() == 1) return {plans.front().json(), 0};
  std::vector<Call> calls;
  for (Plan& plan : plans) calls.emplace_back(std::move(plan), problem);
  const auto seconds = time_plans(handle_, stream_, problem, calls);
  const std::size_t best = choose_candidate(seconds);
  if (best == seconds.size()) return {calls.front().plan().json(), 0};  // not timed
  return {calls[best].plan().json(), seconds[best]};
}

}  // namespace millrace::cuda::cudnn
