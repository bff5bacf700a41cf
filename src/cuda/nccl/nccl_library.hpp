// What is used of NCCL, loaded late.
#pragma once
#include <nccl.h>

#include "cuda/runtime/library.hpp"

namespace millrace::cuda {

inline constinit Library nccl_library("libnccl.so.2", MILLRACE_NCCL_FOLDER, "NCCL (libnccl.so.2)");

MR_LATE(nccl_library, ncclAllGather);
MR_LATE(nccl_library, ncclAllReduce);
MR_LATE(nccl_library, ncclBroadcast);
MR_LATE(nccl_library, ncclCommAbort);
MR_LATE(nccl_library, ncclCommDeregister);
MR_LATE(nccl_library, ncclCommDestroy);
MR_LATE(nccl_library, ncclCommFinalize);
MR_LATE(nccl_library, ncclCommGetAsyncError);
MR_LATE(nccl_library, ncclCommInitRankConfig);
MR_LATE(nccl_library, ncclCommRegister);
MR_LATE(nccl_library, ncclGetErrorString);
MR_LATE(nccl_library, ncclGetLastError);
MR_LATE(nccl_library, ncclGetUniqueId);
MR_LATE(nccl_library, ncclGetVersion);
MR_LATE(nccl_library, ncclMemAlloc);
MR_LATE(nccl_library, ncclMemFree);
MR_LATE(nccl_library, ncclReduceScatter);

}  // namespace millrace::cuda
