// What is used of cuDNN, loaded late.
#pragma once
#include <cudnn.h>

#include "cuda/runtime/library.hpp"

namespace millrace::cuda {

inline constinit Library cudnn_library("libcudnn.so.9", MILLRACE_CUDNN_FOLDER, "cuDNN 9 (libcudnn.so.9)");

MR_LATE(cudnn_library, cudnnBackendCreateDescriptor);
MR_LATE(cudnn_library, cudnnBackendDestroyDescriptor);
MR_LATE(cudnn_library, cudnnBackendExecute);
MR_LATE(cudnn_library, cudnnBackendFinalize);
MR_LATE(cudnn_library, cudnnBackendGetAttribute);
MR_LATE(cudnn_library, cudnnBackendSetAttribute);
MR_LATE(cudnn_library, cudnnCreate);
MR_LATE(cudnn_library, cudnnDestroy);
MR_LATE(cudnn_library, cudnnGetErrorString);
MR_LATE(cudnn_library, cudnnGetLastErrorString);
MR_LATE(cudnn_library, cudnnGetVersion);
MR_LATE(cudnn_library, cudnnSetStream);

}  // namespace millrace::cuda
