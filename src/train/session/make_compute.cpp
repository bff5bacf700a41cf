#include "millrace/train/session/make_compute.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/system/cores.hpp"

namespace millrace {
namespace {

// Resolves run.device = auto. The result is the same on all ranks, because ranks on CPUs and ranks on GPUs cannot train
// together. Returns the reason why no GPU is used, or "" if one is used. Collective. Error(config): only some ranks
// have a GPU.
std::string why_not_cuda(World& world) {
  std::string mine;
  cuda_usable(world, &mine);
  const auto reasons = world.gather(mine);
  const auto without_gpu = std::count_if(reasons.begin(), reasons.end(), [](const auto& r) { return !r.empty(); });
  if (without_gpu > 0 && without_gpu < world.size())
    world.agree(Exit::config, mine.empty() ? "" : fmt::format("run.device: {} (other ranks have a GPU)", mine));
  return mine.substr(0, mine.find(". "));
}

}  // namespace

DType dtype_of(Precision p) {
  return p == Precision::fp32 ? DType::f32 : p == Precision::bf16 ? DType::bf16 : DType::f16;
}

ExecutionContext make_execution_context(World& world, const RunConfig& config, Placement* placement) {
  ExecutionOptions options;
  // Libraries split sums by the number of threads, so it must not vary.
  const bool strict = config.run.reproducible == Reproducible::strict;
  const std::string reason = config.run.device == DeviceChoice::automatic ? why_not_cuda(world) : "";
  const bool cuda = config.run.device != DeviceChoice::cpu && reason.empty();
  options.placement = plan_placement(world, strict ? 1 : config.run.threads, std::max(0, config.data.workers),
                                     cuda ? cpus_near_gpu(world) : std::vector<int>());
  if (!options.placement.near_cpus.empty()) allow_cpus(options.placement.near_cpus);
  if (strict && config.run.threads > 1)
    log::warn("run.threads: with run.reproducible = strict a rank computes with one thread. start more ranks instead");
  options.deterministic = config.run.deterministic || strict;
  options.exchanges = config.model.sync_batch_norm;
  options.collective.timeout_seconds = config.comm.timeout;
  options.collective.progress = config.comm.progress;
  options.collective.delay_seconds_per_mb = config.test.all_reduce_delay;
  options.cpu = config.cpu;
  options.cuda = config.cuda;
  options.cuda.collective_backend = config.comm.backend;
  if (!options.placement.warning.empty()) log::warn(options.placement.warning);
  if (placement) *placement = options.placement;
  ExecutionContext compute = cuda ? make_cuda_context(world, options) : make_cpu_context(world, options);
  compute.fallback_reason = reason;
  return compute;
}

}  // namespace millrace
