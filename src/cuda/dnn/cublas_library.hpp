// The functions of cuBLASLt that millrace uses; cuBLASLt is loaded at the first call.
#pragma once
#include <cublasLt.h>

#include "cuda/runtime/dynamic_library.hpp"

namespace millrace::cuda {

inline constinit DynamicLibrary cublas_library(MILLRACE_CUBLASLT, MILLRACE_CUBLASLT_FOLDER,
                                               "cuBLASLt (" MILLRACE_CUBLASLT ", a part of the CUDA toolkit)");

MR_LAZY_FUNCTION(cublas_library, cublasLtCreate);
MR_LAZY_FUNCTION(cublas_library, cublasLtDestroy);
MR_LAZY_FUNCTION(cublas_library, cublasLtGetStatusName);
MR_LAZY_FUNCTION(cublas_library, cublasLtGetStatusString);
MR_LAZY_FUNCTION(cublas_library, cublasLtGetVersion);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmul);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulAlgoCheck);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulAlgoConfigGetAttribute);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulAlgoGetHeuristic);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulDescCreate);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulDescDestroy);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulDescSetAttribute);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulPreferenceCreate);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulPreferenceDestroy);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatmulPreferenceSetAttribute);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatrixLayoutCreate);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatrixLayoutDestroy);
MR_LAZY_FUNCTION(cublas_library, cublasLtMatrixLayoutSetAttribute);

}  // namespace millrace::cuda
