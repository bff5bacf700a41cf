// The functions of NCCL that millrace uses; NCCL is loaded at the first call.
#pragma once
#include <nccl.h>

#include "cuda/runtime/dynamic_library.hpp"

namespace millrace::cuda {

inline constinit DynamicLibrary nccl_library("libnccl.so.2", MILLRACE_NCCL_FOLDER, "NCCL (libnccl.so.2)");

MR_LAZY_FUNCTION(nccl_library, ncclAllGather);
MR_LAZY_FUNCTION(nccl_library, ncclAllReduce);
MR_LAZY_FUNCTION(nccl_library, ncclBroadcast);
MR_LAZY_FUNCTION(nccl_library, ncclCommAbort);
MR_LAZY_FUNCTION(nccl_library, ncclCommDeregister);
MR_LAZY_FUNCTION(nccl_library, ncclCommDestroy);
MR_LAZY_FUNCTION(nccl_library, ncclCommFinalize);
MR_LAZY_FUNCTION(nccl_library, ncclCommGetAsyncError);
MR_LAZY_FUNCTION(nccl_library, ncclCommInitRankConfig);
MR_LAZY_FUNCTION(nccl_library, ncclCommRegister);
MR_LAZY_FUNCTION(nccl_library, ncclCommWindowDeregister);  // since NCCL 2.27, as the next
MR_LAZY_FUNCTION(nccl_library, ncclCommWindowRegister);
MR_LAZY_FUNCTION(nccl_library, ncclGetErrorString);
MR_LAZY_FUNCTION(nccl_library, ncclGetLastError);
MR_LAZY_FUNCTION(nccl_library, ncclGetUniqueId);
MR_LAZY_FUNCTION(nccl_library, ncclGetVersion);
MR_LAZY_FUNCTION(nccl_library, ncclMemAlloc);
MR_LAZY_FUNCTION(nccl_library, ncclMemFree);
MR_LAZY_FUNCTION(nccl_library, ncclReduceScatter);

}  // namespace millrace::cuda
