// A convolution, or the gradient of its source, as a sum of matrix products, one for each tap of the kernel (kn2row).
// Each product multiplies the pixels that the tap reads with its weights; the results are added in float32 to the
// output pixels. Like kn2row_weight_gradient.hpp, this is for small images.
#pragma once
#include <map>

#include "cpu/common/conv_part.hpp"
#include "cpu/conv/kn2row_geometry.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

class Kn2rowConv : public ConvPart {
 public:
  // Neither groups nor bias, more than one input channel and more than one tap. The same for Kn2rowWeightGradient.
  static bool supports(const ConvSpec&);
  // Whether this is faster than the convolution of oneDNN.
  static bool is_faster(const ConvSpec&, Of);
  // Adds the memory for its copies of the weights to needs.packed_weights.
  Kn2rowConv(const ConvSpec&, Of, MemoryRequirements& needs);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  void repack(const OpArgs&) override;
  void run(const OpArgs&) override;

 private:
  const Kn2rowGeometry taps_;
  const DType dtype_;
  const Kn2rowGeometry::Side from_, to_;
  std::vector<PackedWeight> weights_;              // one for each tap
  std::map<std::int64_t, onednn::Call> products_;  // by number of rows
  std::size_t rows_at_ = 0, product_at_ = 0, sum_at_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
