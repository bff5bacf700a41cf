// The functions of cuDNN that millrace uses; cuDNN is loaded at the first call.
#pragma once
#include <cudnn.h>

#include "cuda/runtime/dynamic_library.hpp"

namespace millrace::cuda {

inline constinit DynamicLibrary cudnn_library("libcudnn.so.9", MILLRACE_CUDNN_FOLDER, "cuDNN 9 (libcudnn.so.9)");

MR_LAZY_FUNCTION(cudnn_library, cudnnBackendCreateDescriptor);
MR_LAZY_FUNCTION(cudnn_library, cudnnBackendDestroyDescriptor);
MR_LAZY_FUNCTION(cudnn_library, cudnnBackendExecute);
MR_LAZY_FUNCTION(cudnn_library, cudnnBackendFinalize);
MR_LAZY_FUNCTION(cudnn_library, cudnnBackendGetAttribute);
MR_LAZY_FUNCTION(cudnn_library, cudnnBackendSetAttribute);
MR_LAZY_FUNCTION(cudnn_library, cudnnCreate);
MR_LAZY_FUNCTION(cudnn_library, cudnnDestroy);
MR_LAZY_FUNCTION(cudnn_library, cudnnGetErrorString);
MR_LAZY_FUNCTION(cudnn_library, cudnnGetLastErrorString);
MR_LAZY_FUNCTION(cudnn_library, cudnnGetVersion);
MR_LAZY_FUNCTION(cudnn_library, cudnnSetStream);

}  // namespace millrace::cuda
