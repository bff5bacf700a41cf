// Which of cuBLAS's products a linear layer is made of, and with what epilogue.
#pragma once
#include "cuda/dnn/matmul.hpp"
#include "millrace/ops/linear.hpp"

namespace millrace::cuda {

bool has_fused_epilogue(Activation);  // relu and gelu_tanh, which cuBLAS knows
// gelu_tanh's source lies beside the result only in rows of a multiple of 8 features.
bool aux_is_aligned(Activation, std::int64_t features);

// Of a forward product, what cuBLAS knows of an activation, with a bias and with what its gradient needs kept in aux.
Epilogue forward_epilogue(Activation, bool bias, bool aux);
// ahead() as the layer wants it: relu's bits are kept only for a layer behind that reads them.
Epilogue layer_epilogue(const LinearSpec&);

MatmulSpec forward_matmul(const LinearSpec&, Epilogue);
MatmulSpec backward_data_matmul(const LinearSpec&);

// A fused product; null where cuBLAS has none, or where the one with another epilogue and kernels that pass over its
// result so many times are faster: `why` says which.
std::unique_ptr<Matmul> find_if_faster(Cublas&, const MatmulSpec& fused, Epilogue other, int passes, std::string& why);

}  // namespace millrace::cuda
