// Matrix products, prepared once and run many times, and where they come from. Free of CUDA's headers, so that what is
// made of products can be tested on a host.
//
//   D = epilogue(op(A) op(B)) + beta D      D: m x n, op(A): m x k, op(B): k x n
//
// All matrices are dense and, as cuBLAS wants them, column-major: a row-major (r, c) array is the column-major c x r.
#pragma once
#include <memory>
#include <string>

#include "cuda/runtime/block.hpp"
#include "millrace/base/types.hpp"

namespace millrace::cuda {

// What becomes of the product before it is D. bias: a vector of D's type, added as bias[row] or written. aux: a matrix
// beside D, written on the way forward and read on the way back, in cuBLAS's own layout (aux_bytes). gelu is
// Activation::gelu_tanh.
enum class Epilogue {
  none,
  bias,                     // + bias
  relu,                     //
  bias_relu,                //
  relu_aux,                 // aux: a bit for each element that relu lets pass
  bias_relu_aux,            //
  gelu,                     //
  bias_gelu,                //
  gelu_aux,                 // aux: what gelu is taken of, in D's type and layout
  bias_gelu_aux,            //
  relu_gradient,            // times relu's slope, by aux
  relu_gradient_bias_grad,  // and besides bias[row] = sum over the columns of D
  gelu_gradient,            // times gelu's slope at aux
  gelu_gradient_bias_grad,  //
  bias_grad                 // none, and besides bias[column] = sum over k of op(B)[k, column]
};

struct MatmulSpec {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType input = DType::f32;   // of A and B
  DType output = DType::f32;  // of D; sums are made in float32
  Epilogue epilogue = Epilogue::none;
  bool operator==(const MatmulSpec&) const = default;
};

bool has_bias(Epilogue);
enum class Aux { none, bits, values };
Aux aux_of(Epilogue);
// From one column of aux to the next, in bits or values. cuBLAS wants multiples of 128 bits, of 8 values: D's rows have
// to be such a multiple with values, since their columns stand as D's.
std::int64_t aux_stride(Epilogue, std::int64_t rows);
std::size_t aux_bytes(const MatmulSpec&);

struct MatmulArgs {
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  void *bias = nullptr, *aux = nullptr;  // as the epilogue says, else null
  void* workspace = nullptr;
  float beta = 0;  // 0: D is not read
};

class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::string name() const = 0;
  // Of one run, as timed when the kernel was chosen; 0: not timed. The same on every rank.
  virtual double seconds() const = 0;
  virtual void run(StreamHandle, const MatmulArgs&) = 0;  // 16-byte aligned pointers
};

class Cublas {
 public:
  virtual ~Cublas() = default;
  virtual std::unique_ptr<Matmul> find(const MatmulSpec&) = 0;  // null where the library has nothing for it
  std::unique_ptr<Matmul> make(const MatmulSpec&);              // Error(config) instead
};

std::string str(const MatmulSpec&);  // "768 x 4096 x 3072 bf16 -> f32, A transposed"

}  // namespace millrace::cuda
