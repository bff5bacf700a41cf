// One check for each of CUDA's libraries: an Error with the call's text and the library's own words. Exit::comm: the
// step is lost, the job may be started again.
#pragma once
#include <cuda_runtime.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    fail(Exit::comm, call, ": ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")");
}

}  // namespace millrace::cuda

#define MR_CUDA(call) ::millrace::cuda::check(call, #call)
