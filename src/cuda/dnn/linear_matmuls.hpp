// Linear layers, made of the matrix multiplications of a library, and these multiplications with their epilogues.
#pragma once
#include "cuda/dnn/matmul.hpp"
#include "millrace/ops/linear.hpp"

namespace millrace::cuda {

// The Cublas must outlive the operation.
std::unique_ptr<Op> make_linear(const LinearSpec&, const LaunchContext&, Cublas&);

// Implements Backend::why_not_fused. Fusion is rejected if cuBLAS does not support the gradient of the activation or
// the shape, if it has no kernel, or if the measured time of the fused kernel is longer than that of the plain kernel
// and of the passes over memory that fusion saves.
std::string why_not_fused(const LinearSpec&, Cublas&);

bool has_fused_epilogue(Activation);  // relu and gelu_tanh, which cuBLAS supports
// cuBLAS can store the input of gelu_tanh in aux only if the number of features is a multiple of 8.
bool aux_is_aligned(Activation, std::int64_t features);

// The epilogue of a forward multiplication with this activation. bias: it adds a bias. aux: it stores what the gradient
// of the activation needs.
Epilogue forward_epilogue(Activation, bool bias, bool aux);
// The forward epilogue that a layer needs. It stores the bits of a relu only if the next layer reads them.
Epilogue layer_epilogue(const LinearSpec&);

MatmulSpec forward_matmul(const LinearSpec&, Epilogue);
MatmulSpec backward_data_matmul(const LinearSpec&);

// The fused multiplication; null, with the reason in `why`, if cuBLAS has no kernel for it, or if it is slower than the
// alternative: the multiplication with epilogue `other`, and separate kernels that read or write its result `passes`
// times.
std::unique_ptr<Matmul> find_if_faster(Cublas&, const MatmulSpec& fused, Epilogue other, int passes, std::string& why);

}  // namespace millrace::cuda
