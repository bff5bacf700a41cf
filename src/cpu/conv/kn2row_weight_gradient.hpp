// The weight gradient of a convolution as a sum of matrix products, one for each tap of the kernel: of the outputs that
// the tap has an input for, diff_dst^T * src. Where images are small, these run at several times the rate of oneDNN's
// convolutions (docs/benchmarks/2026-11-step-cpu.md). Private to the cpu room.
#pragma once
#include <map>

#include "cpu/conv/kn2row_geometry.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

class Kn2rowWeightGradient {
 public:
  static bool is_faster(const ConvSpec&);  // it is faster there
  explicit Kn2rowWeightGradient(const ConvSpec&);

  std::size_t workspace() const { return workspace_; }
  std::string implementation() const;  // "9 x gemm:jit"
  // diff_weight[0] from src[0] and diff_dst, written or added.
  void run(const OpArgs&);

 private:
  struct Product {
    onednn::Call write, add;
  };
  const Kn2rowGeometry taps_;
  const std::size_t element_;
  std::map<std::int64_t, Product> products_;  // by rows
  std::size_t src_at_ = 0, diff_at_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
