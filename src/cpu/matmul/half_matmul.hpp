// Products of bf16 matrices on AMX with float32 results, for gradients of weights: the depth of the product (pixels or
// rows of a batch) is the slow axis of both matrices. oneDNN needs up to 1.6 times as long
// (docs/benchmarks/2026-11-choice.md).
#pragma once
#include "cpu/matmul/float_matmul.hpp"

namespace millrace::cpu {

class HalfMatmul : public FloatProduct {
 public:
  // Whether the elements of a column of `a` and of a row of `b` lie side by side, and packing pays. For processors with
  // AMX.
  static bool suits(const MatmulShape&);

  // dst = a * b, or dst += a * b if add. `threads`: at most so many compute. The result has the same bits for each
  // number of threads.
  HalfMatmul(const MatmulShape&, bool add, int threads);

  std::string name() const override { return "half_matmul:avx512_core_amx"; }
  std::size_t scratch_bytes() const override;
  // a, b: bf16. bias: null.
  void run(const void* a, const void* b, const float* bias, float* dst, void* scratch) const override;

 private:
  struct Part {
    std::int64_t row_begin, row_end, column_begin, column_end;
  };
  void run_part(const Part&, const bf16* a, const bf16* b, float* dst, bf16* scratch) const;
  void multiply(const Part&, const bf16* rows, const bf16* columns, std::int64_t steps, bool starts, float* dst) const;

  MatmulShape shape_;
  bool add_;
  int threads_;
  std::int64_t depth_block_, panel_rows_, panel_columns_;
  std::size_t part_scratch_;  // bytes of one thread
};

}  // namespace millrace::cpu
