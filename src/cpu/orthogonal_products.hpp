// The matrix products of Newton-Schulz steps, by oneDNN. A product is divided into blocks of rows, and each block runs
// on one thread. So the result does not depend on the number of threads, which may differ between ranks.
#pragma once
#include <vector>

#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu {

// dst = src * factor, or dst += src * factor. src: (rows, inner), factor: (inner, columns), dst: dense and row-major.
class BlockedProduct {
 public:
  struct Extents {
    std::int64_t rows, inner, columns;
  };
  BlockedProduct(const Extents&, const MatrixStrides& src, const MatrixStrides& factor, bool add);
  // before and after get the first element of a block of dst, and its count.
  template <class Before, class After>
  void run(float* src, float* factor, float* dst, const Before& before, const After& after);

 private:
  static constexpr std::int64_t block_rows = 64;
  struct ThreadCalls {
    onednn::Call whole, last;  // a block of block_rows rows; the last one, with fewer rows
    std::vector<std::byte> scratch;
  };
  std::int64_t blocks() const { return (extents_.rows + block_rows - 1) / block_rows; }
  void run_block(ThreadCalls&, std::int64_t block, float* src, float* factor, float* dst);

  Extents extents_;
  MatrixStrides src_;
  std::vector<ThreadCalls> threads_;
};

// For matrices of one shape.
class OrthogonalProducts {
 public:
  OrthogonalProducts(std::int64_t rows, std::int64_t columns);
  // x: (rows, columns), with a Frobenius norm of at most 1. The result is in x or in `other`, which has the same size.
  // gram, polynomial: min(rows, columns)^2 elements each.
  float* run(int steps, float* x, float* other, float* gram, float* polynomial);

 private:
  bool tall_;
  BlockedProduct gram_, square_, apply_;
};

}  // namespace millrace::cpu
