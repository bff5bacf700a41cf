// The epilogues of cuBLASLt as cuda::Epilogue.
#pragma once
#include <cublasLt.h>

#include <optional>
#include <utility>

#include "cuda/dnn/matmul.hpp"

namespace millrace::test {

inline std::optional<cuda::Epilogue> epilogue_from(cublasLtEpilogue_t epilogue) {
  using cuda::Epilogue;
  static constexpr std::pair<cublasLtEpilogue_t, Epilogue> all[] = {
      {CUBLASLT_EPILOGUE_DEFAULT, Epilogue::none},
      {CUBLASLT_EPILOGUE_BIAS, Epilogue::bias},
      {CUBLASLT_EPILOGUE_RELU, Epilogue::relu},
      {CUBLASLT_EPILOGUE_RELU_BIAS, Epilogue::bias_relu},
      {CUBLASLT_EPILOGUE_RELU_AUX, Epilogue::relu_aux},
      {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, Epilogue::bias_relu_aux},
      {CUBLASLT_EPILOGUE_GELU, Epilogue::gelu},
      {CUBLASLT_EPILOGUE_GELU_BIAS, Epilogue::bias_gelu},
      {CUBLASLT_EPILOGUE_GELU_AUX, Epilogue::gelu_aux},
      {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, Epilogue::bias_gelu_aux},
      {CUBLASLT_EPILOGUE_DRELU, Epilogue::relu_gradient},
      {CUBLASLT_EPILOGUE_DRELU_BGRAD, Epilogue::relu_gradient_bias_grad},
      {CUBLASLT_EPILOGUE_DGELU, Epilogue::gelu_gradient},
      {CUBLASLT_EPILOGUE_DGELU_BGRAD, Epilogue::gelu_gradient_bias_grad},
      {CUBLASLT_EPILOGUE_BGRADB, Epilogue::bias_grad}};
  for (const auto& [of_cublas, ours] : all)
    if (of_cublas == epilogue) return ours;
  return std::nullopt;
}

}  // namespace millrace::test
