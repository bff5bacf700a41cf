#pragma once
#include <memory>

#include "cuda/runtime/device.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {

// Collective: rank 0 chooses the kernels of every convolution and product when it is first made, the others take its
// choice.
std::unique_ptr<Backend> make_cuda_backend(World&, CudaDevice&, const ExecutionOptions&);

}  // namespace millrace::cuda
