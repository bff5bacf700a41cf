// The check of every CUDA runtime call. A failure throws Error(comm): the step is lost, but the job can be restarted.
// The message contains the call, CUDA's error, and what this rank was doing (see error_context.hpp). Each other library
// has a check of the same kind.
#pragma once
#include <cuda_runtime.h>

#include "cuda/errors/error_context.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw Error(Exit::comm, error_context::describe_failure(call, status));
}

}  // namespace millrace::cuda

#define MR_CUDA(call) ::millrace::cuda::check(call, #call)
