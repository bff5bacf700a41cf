// The weight gradient of a convolution as matrix products, one for each tap of the kernel: diff_dst^T * src, over the
// output pixels for which the tap reads an input pixel. For small images, these are several times as fast as the
// convolutions of oneDNN (docs/benchmarks/2026-11-step-cpu.md).
#pragma once
#include <map>

#include "cpu/common/conv_part.hpp"
#include "cpu/conv/kn2row_geometry.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

class Kn2rowWeightGradient : public ConvPart {
 public:
  // Whether this is faster than the convolution of oneDNN. Supports neither groups nor bias.
  static bool is_faster(const ConvSpec&);
  explicit Kn2rowWeightGradient(const ConvSpec&);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  // Computes diff_weight[0] from src[0] and diff_dst, and writes or adds it.
  void run(const OpArgs&) override;

 private:
  struct Product {
    onednn::Call write, add;
  };
  const Kn2rowGeometry taps_;
  const std::size_t element_;
  std::map<std::int64_t, Product> products_;  // by number of rows
  std::size_t src_at_ = 0, diff_at_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
