// Matrix multiplications, prepared once and run many times, and the interface of the library that provides them. This
// header needs no headers of CUDA, so that operations made of matrix multiplications can be tested on the host.
//
//   D = alpha epilogue(op(A) op(B)) + beta C      C and D: m x n, op(A): m x k, op(B): k x n
//
// All matrices are dense and column-major, as cuBLAS needs them. A row-major array (r, c) is a column-major c x r
// matrix. A batch is a number of such products, whose matrices follow each other in memory.
#pragma once
#include <memory>
#include <string>

#include "cuda/block/block.hpp"
#include "cuda/kernels/orthogonalizer.hpp"
#include "millrace/base/types.hpp"
#include "millrace/ops/matmul.hpp"
#include "millrace/ops/recurrent.hpp"

namespace millrace::cuda {

// What happens to the product before it is stored in D.
//   bias   a vector of D's type: added as bias[row], or written by the *bias_grad epilogues
//   aux    a second matrix in cuBLAS's own layout (aux_bytes()): forward writes it, and backward reads it
//   gelu   means Activation::gelu_tanh
enum class Epilogue {
  none,
  bias,                     // + bias
  relu,                     //
  bias_relu,                //
  relu_aux,                 // aux: one bit for each element, 1 where relu is active
  bias_relu_aux,            //
  gelu,                     //
  bias_gelu,                //
  gelu_aux,                 // aux: the input of gelu, in D's type and layout
  bias_gelu_aux,            //
  relu_gradient,            // times the derivative of relu, from aux
  relu_gradient_bias_grad,  // also bias[row] = sum over the columns of D
  gelu_gradient,            // times the derivative of gelu at aux
  gelu_gradient_bias_grad,  //
  bias_grad                 // also bias[column] = sum over k of op(B)[k, column]
};

struct MatmulSpec {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType input = DType::f32;   // of A and B
  DType output = DType::f32;  // of D; sums are computed in float32
  Epilogue epilogue = Epilogue::none;
  bool add = false;        // meant for a beta of 1: it is chosen and timed with it. Others are timed with 0
  std::int64_t batch = 1;  // more than 1 without an epilogue only
  bool operator==(const MatmulSpec&) const = default;
};

bool has_bias(Epilogue);
enum class Aux { none, bits, values };
Aux aux_of(Epilogue);
// The distance from one column of aux to the next, in bits or values. cuBLAS needs a multiple of 128 bits or of 8
// values. With values, aux has the layout of D, so the rows of D must be a multiple of 8.
std::int64_t aux_stride(Epilogue, std::int64_t rows);
std::size_t aux_bytes(const MatmulSpec&);

struct MatmulArgs {
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  void *bias = nullptr, *aux = nullptr;  // null if the epilogue does not use them
  void* workspace = nullptr;
  float alpha = 1;          // other values without an epilogue only
  float beta = 0;           // 0: C is not read
  const void* c = nullptr;  // null: C is D
};

class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::string name() const = 0;
  // The time of one run, measured when the kernel was chosen; 0: not timed. The same on every rank.
  virtual double seconds() const = 0;
  virtual void run(StreamHandle, const MatmulArgs&) = 0;  // all pointers are 16-byte aligned
};

class Cublas {
 public:
  virtual ~Cublas() = default;
  virtual std::unique_ptr<Matmul> find(const MatmulSpec&) = 0;  // null if the library has no kernel for it
  std::unique_ptr<Matmul> make(const MatmulSpec&);              // Error(config) instead of null
  virtual double copy_bytes_per_second() const = 0;             // of the device's memory; 0: not known
};

// The Newton-Schulz steps of muon, in float32; with TF32 if the Cublas uses it. In newton_schulz.cpp.
std::unique_ptr<Orthogonalizer> make_newton_schulz(std::int64_t rows, std::int64_t columns, int steps,
                                                   const LaunchContext&, Cublas&);

// Products of two values of a network. The Cublas must outlive the operation.
std::unique_ptr<Op> make_batched_matmul(const BatchedMatmulSpec&, const LaunchContext&, Cublas&);
// LSTM and GRU, in recurrent.cpp. The Cublas must outlive the operation.
std::unique_ptr<Op> make_recurrent(const RecurrentSpec&, const LaunchContext&, Cublas&);

std::string str(const MatmulSpec&);  // "768 x 4096 x 3072 bf16 -> f32, A transposed"

}  // namespace millrace::cuda
