#include "cuda/errors/check.hpp"
#include "cuda/nccl/nccl_collective.hpp"
#include "millrace/base/log.hpp"
#include "millrace/comm/staged.hpp"

namespace millrace::cuda {

std::unique_ptr<Collective> make_staged_collective(World& world, CudaDevice& device, const CollectiveOptions& options) {
  const int ordinal = device.ordinal();
  StagingHooks hooks;
  hooks.pin = [ordinal](void* memory, std::size_t bytes) {
    MR_CUDA(cudaSetDevice(ordinal));
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return;
    (void)cudaGetLastError();
    log::warn(
        "cannot page-lock the gradients in host memory, so copies to and from the GPU are slower (see ulimit -l)");
  };
  hooks.begin_thread = [ordinal, rank = world.rank()] {
    error_context::set_rank(rank);
    MR_CUDA(cudaSetDevice(ordinal));  // without this, CUDA would create a context on the first GPU
  };
  hooks.unpin = [](void* memory) {
    if (cudaHostUnregister(memory) != cudaSuccess) (void)cudaGetLastError();
  };
  return millrace::make_staged_collective(world, device, options, std::move(hooks));
}

}  // namespace millrace::cuda
