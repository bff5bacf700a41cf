// Products of float32 matrices for processors with AVX2 and without AVX-512, where oneDNN's products reach about half
// of the arithmetic limit. Blocks as in Goto and van de Geijn 2008 ("Anatomy of high-performance matrix
// multiplication").
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/ops/op.hpp"

namespace millrace::cpu {

// In elements. One of both is 1.
struct MatrixStrides {
  std::int64_t row, column;
};

struct MatmulShape {
  std::int64_t rows, columns, depth;
  MatrixStrides a;         // (rows, depth)
  MatrixStrides b;         // (depth, columns)
  std::int64_t dst_width;  // elements from one row of the result to the next
};

// dst = activation(a * b + bias), or dst += a * b, by own code. dst is float32; a and b are float32 or both bf16.
class FloatProduct {
 public:
  virtual ~FloatProduct() = default;
  virtual std::string name() const = 0;
  virtual std::size_t scratch_bytes() const = 0;
  // bias: (columns), or null. scratch: scratch_bytes(), aligned to 64 bytes, for one call at a time.
  virtual void run(const void* a, const void* b, const float* bias, float* dst, void* scratch) const = 0;
};
// Of rows x columns numbers in place.
void activate_rows(Activation, float* dst, std::int64_t dst_width, std::int64_t rows, std::int64_t columns);

class FloatMatmul : public FloatProduct {
 public:
  // Whether this processor has the instructions.
  static bool available();

  // dst = activation(a * b + bias), or dst += a * b if add. `threads`: at most so many compute. The result has the same
  // bits for each number of threads.
  FloatMatmul(const MatmulShape&, Activation, bool add, int threads);

  std::string name() const override { return "float_matmul:avx2"; }
  std::size_t scratch_bytes() const override;
  void run(const void* a, const void* b, const float* bias, float* dst, void* scratch) const override;

 private:
  struct Part {
    std::int64_t row_begin, row_end, column_begin, column_end;
  };
  struct Span {
    std::int64_t first, count;
  };
  struct Block {
    Span rows, columns, depth;
  };
  // packed_a, packed_b: an operand that all parts read, as pack_shared() has packed it; null: there is none.
  struct Operands {
    const float *a, *b, *bias;
    float* dst;
    const float *packed_a = nullptr, *packed_b = nullptr;
  };
  // Parts are ranges of rows, which all read b, or else ranges of columns, which all read a.
  bool splits_rows() const;
  std::int64_t whole_rows() const;  // in whole panels
  std::int64_t whole_columns() const;
  void pack_shared(Operands&, float* to) const;
  void pack_a(float* to, const float* a, Span depth, Span rows) const;
  void pack_b(float* to, const float* b, Span depth, Span columns) const;
  void run_part(const Part&, const Operands&, float* scratch) const;
  // panels: of b. scratch: for those of a.
  void multiply(const Operands&, const Block&, const float* panels, float* scratch) const;

  MatmulShape shape_;
  Activation activation_;
  bool add_, packs_rows_;
  int threads_;
  std::int64_t depth_block_;      // a part of the depth, whose products are summed up in registers
  std::int64_t shared_ = 0;       // elements that pack_shared() writes; 0: each part packs what it reads
  std::size_t part_scratch_ = 0;  // bytes of one thread
};

}  // namespace millrace::cpu
