#pragma once
#include <memory>

#include "cuda/runtime/device.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {

// The operations on a GPU. Collective: rank 0 chooses the kernels of every convolution and matrix multiplication when
// it is first made, and all other ranks use the same.
std::unique_ptr<Backend> make_cuda_backend(World&, CudaDevice&, const ExecutionOptions&);

}  // namespace millrace::cuda
