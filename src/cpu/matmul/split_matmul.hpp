// Products of float32 matrices on AMX, which multiplies bf16 with float32 sums. A float32 number is the sum of three
// bf16 numbers, and six of the nine products of the parts of two numbers give their product with an error below that of
// a float32 multiplication (Henry, Tang and Heinecke 2019, "Leveraging the bfloat16 Artificial Intelligence Datatype
// For Higher-Precision Computations"). Numbers below 2^-110 lose digits. Infinite ones become
// NaN, as do those from 3.396e38 on, which bf16 rounds to infinity.
#pragma once
#include "cpu/matmul/float_matmul.hpp"

namespace millrace::cpu {

class SplitMatmul : public FloatProduct {
 public:
  // Whether the parts pay: a number is split once for many multiplications. For processors with AMX.
  static bool suits(const MatmulShape&);

  // As FloatMatmul.
  SplitMatmul(const MatmulShape&, Activation, bool add, int threads);

  std::string name() const override { return "split_matmul:avx512_core_amx"; }
  std::size_t scratch_bytes() const override;
  void run(const void* a, const void* b, const float* bias, float* dst, void* scratch) const override;

 private:
  struct Part {
    std::int64_t row_begin, row_end, column_begin, column_end;
  };
  void run_part(const Part&, const float* a, const float* b, const float* bias, float* dst, bf16* scratch) const;
  void multiply(const Part&, std::int64_t k0, const float* a, const float* b, const float* bias, float* dst,
                bf16* scratch) const;

  MatmulShape shape_;
  Activation activation_;
  bool add_;
  int threads_;
  std::int64_t depth_block_;  // a multiple of the depth of a tile; products of a block are summed up in registers
  std::size_t part_scratch_;  // bytes of one thread
};

}  // namespace millrace::cpu
