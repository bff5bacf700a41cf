// Replaces src/cuda in a build without CUDA: every function reports that CUDA is missing.
#include "millrace/compute/execution_context.hpp"

namespace millrace {
namespace {

const char* const absent =
    "millrace was built without CUDA. set run.device = cpu (or auto), or rebuild it where the CUDA toolkit, cuDNN and "
    "NCCL are installed";

}  // namespace

ExecutionContext make_cuda_context(World&, const ExecutionOptions&) {
  throw Error(Exit::config, std::string("run.device: ") + absent);
}

bool cuda_usable(const World&, std::string* why_not) {
  if (why_not) *why_not = absent;
  return false;
}

std::vector<int> cpus_near_gpu(const World&) { return {}; }

std::string describe_gpus() { return std::string("none: ") + absent; }

}  // namespace millrace
