// Matrix products, prepared once and run many times, and where they come from. Free of CUDA's headers, so that what is
// made of products can be tested on a host.
//
//   D = epilogue(op(A) op(B)) + beta D      D: m x n, op(A): m x k, op(B): k x n
//
// All matrices are dense and, as cuBLAS wants them, column-major: a row-major (r, c) array is the column-major c x r.
#pragma once
#include <memory>
#include <string>

#include "block.hpp"
#include "millrace/base/types.hpp"

namespace millrace::cuda {

enum class Epilogue {
  none,
  bias,       // + bias[row]; the vector has D's type
  relu,       //
  bias_relu,  //
  bias_grad   // none, and besides bias[column] = sum over k of op(B)[k, column], of D's type
};

struct MatmulSpec {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType input = DType::f32;   // of A and B
  DType output = DType::f32;  // of D; sums are made in float32
  Epilogue epilogue = Epilogue::none;
  bool operator==(const MatmulSpec&) const = default;
};

class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::string name() const = 0;
  // 16-byte aligned pointers. bias: as the epilogue says, else null. beta 0: D is not read. alpha scales the product,
  // not the bias and not its gradient.
  virtual void run(Stream, float alpha, const void* a, const void* b, float beta, void* d, void* bias,
                   void* workspace) = 0;
};

class Cublas {
 public:
  virtual ~Cublas() = default;
  virtual std::unique_ptr<Matmul> find(const MatmulSpec&) = 0;  // null where the library has nothing for it
  std::unique_ptr<Matmul> make(const MatmulSpec&);              // Error(config) instead
};

std::string str(const MatmulSpec&);  // "768 x 4096 x 3072 bf16 -> f32, A transposed"

}  // namespace millrace::cuda
