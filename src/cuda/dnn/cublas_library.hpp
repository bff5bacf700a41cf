// What is used of cuBLASLt, loaded late.
#pragma once
#include <cublasLt.h>

#include "cuda/runtime/library.hpp"

namespace millrace::cuda {

inline constinit Library cublas_library(MILLRACE_CUBLASLT, MILLRACE_CUBLASLT_FOLDER,
                                        "cuBLASLt (" MILLRACE_CUBLASLT ", a part of the CUDA toolkit)");

MR_LATE(cublas_library, cublasLtCreate);
MR_LATE(cublas_library, cublasLtDestroy);
MR_LATE(cublas_library, cublasLtGetStatusName);
MR_LATE(cublas_library, cublasLtGetStatusString);
MR_LATE(cublas_library, cublasLtGetVersion);
MR_LATE(cublas_library, cublasLtMatmul);
MR_LATE(cublas_library, cublasLtMatmulAlgoCheck);
MR_LATE(cublas_library, cublasLtMatmulAlgoConfigGetAttribute);
MR_LATE(cublas_library, cublasLtMatmulAlgoGetHeuristic);
MR_LATE(cublas_library, cublasLtMatmulDescCreate);
MR_LATE(cublas_library, cublasLtMatmulDescDestroy);
MR_LATE(cublas_library, cublasLtMatmulDescSetAttribute);
MR_LATE(cublas_library, cublasLtMatmulPreferenceCreate);
MR_LATE(cublas_library, cublasLtMatmulPreferenceDestroy);
MR_LATE(cublas_library, cublasLtMatmulPreferenceSetAttribute);
MR_LATE(cublas_library, cublasLtMatrixLayoutCreate);
MR_LATE(cublas_library, cublasLtMatrixLayoutDestroy);

}  // namespace millrace::cuda
