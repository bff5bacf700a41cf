#include "cudnn.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "check.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda::cudnn {
namespace {

cudnnHandle_t make_handle(Stream stream) {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate", Exit::config);
  if (const auto status = cudnnSetStream(handle, stream); status != CUDNN_STATUS_SUCCESS) {
    cudnnDestroy(handle);
    check(status, "cudnnSetStream", Exit::config);
  }
  return handle;
}

cudaDeviceProp current_device() {
  int device = 0;
  cudaDeviceProp properties;
  MR_CUDA(cudaGetDevice(&device));
  MR_CUDA(cudaGetDeviceProperties(&properties, device));
  return properties;
}

std::string identity_of_current_device() {
  const cudaDeviceProp p = current_device();
  int driver = 0;
  MR_CUDA(cudaDriverGetVersion(&driver));
  return cat("cuDNN ", cudnnGetVersion(), ", ", p.name, ", ", p.multiProcessorCount, " multiprocessors, driver ",
             driver);
}

}  // namespace

Cudnn::Cudnn(const Context& context, const Options& options)
    : stream_(context.stream),
      handle_(make_handle(context.stream)),
      options_(options),
      target_(handle_),
      cache_(identity_of_current_device()) {
  if (options_.keep && options_.rank == 0) {
    const cudaDeviceProp p = current_device();
    file_ = plan_cache_file(cudnnGetVersion(), p.name, p.multiProcessorCount);
    cache_.load(file_);
  }
  if (!options_.broadcast) return;
  const std::string all = options_.broadcast(options_.rank == 0 ? cache_.exported() : "");
  if (options_.rank == 0) return;
  const std::string why = cache_.adopt(all);
  MR_CHECK(why.empty(), why);
}

Cudnn::Cudnn(const std::string& device_properties, const Options& options)
    : options_(options), target_(Target::described_by(device_properties)), cache_(device_properties) {}

Cudnn::~Cudnn() {
  save();
  if (handle_) cudnnDestroy(handle_);
}

void Cudnn::save() { cache_.save(file_); }

// Rank 0's entry on all ranks; what the others pass does not count. It travels as a cache of one.
PlanEntry Cudnn::shared(const std::string& key, PlanEntry mine) const {
  if (!options_.broadcast) return mine;
  PlanCache one("");
  one.insert(key, std::move(mine));
  one.absorb(options_.broadcast(options_.rank == 0 ? one.exported() : ""));
  return *one.find(key);
}

// The same on every rank.
PlanEntry Cudnn::entry(const ConvProblem& problem) {
  const std::string key = cat(problem.key(), " ", options_.rules.key(), times() ? "" : " untimed");
  if (!cache_.find(key)) {
    PlanEntry mine;
    if (!options_.broadcast || options_.rank == 0) {
      try {
        mine = select(problem);
      } catch (...) {
        shared(key, {});  // the others wait
        throw;
      }
    }
    cache_.insert(key, shared(key, std::move(mine)));
  }
  return *cache_.find(key);
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
    log::local(cat("warning: a remembered convolution kernel does not load here (", last_error(),
                   "). cuDNN's own choice is taken"));
  warned_ = true;
  auto plans = ConvGraph(target_, problem).plans(options_.rules, 1);
  if (plans.empty()) return std::nullopt;
  return Choice{std::move(plans.front()), 0};
}

PlanEntry Cudnn::select(const ConvProblem& problem) {
  // Few channels: the good engines stand far down in cuDNN's list.
  const std::size_t most = !times() ? 1 : problem.src[-1] < 8 ? 32 : options_.candidates;
  auto plans = ConvGraph(target_, problem).plans(options_.rules, most);
  if (plans.empty()) return {};
  if (most == 1 || plans.size() == 1) return {plans.front().json(), 0};
  std::vector<Call> calls;
  for (Plan& plan : plans) calls.emplace_back(std::move(plan), problem);
  const auto seconds = time_plans(handle_, stream_, problem, calls);
  const auto best = std::size_t(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
  const bool timed = seconds[best] < 1e30;
  return {calls[best].plan().json(), timed ? seconds[best] : 0};
}

}  // namespace millrace::cuda::cudnn
