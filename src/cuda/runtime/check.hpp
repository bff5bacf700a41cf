// One check for each of CUDA's libraries: an Error with the call's text, the library's own words, and what this rank
// was doing (see work.hpp). Exit::comm: the step is lost, the job may be started again.
#pragma once
#include <cuda_runtime.h>

#include "cuda/runtime/error_context.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw Error(Exit::comm, error_context::describe_failure(call, status));
}

}  // namespace millrace::cuda

#define MR_CUDA(call) ::millrace::cuda::check(call, #call)
