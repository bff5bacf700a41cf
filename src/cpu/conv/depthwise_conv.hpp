// A convolution of float32 with a kernel for each channel (groups = channels), in one to three dimensions, and the
// gradient of its source. The sums of six pixels and 16 channels stay in registers over all taps.
//
// Bound: 2 * taps operations for each 8 bytes of source and output. Kernels of 3 x 3 are bound by memory, those of 7 x
// 7 by arithmetic.
#pragma once
#include "cpu/conv/depthwise_geometry.hpp"

namespace millrace::cpu {

class DepthwiseConv : public ConvPart {
 public:
  // Adds the memory for its copy of the weights to needs.packed_weights.
  DepthwiseConv(const ConvSpec&, Of, MemoryRequirements& needs);

  std::size_t workspace() const override;
  std::string implementation() const override { return "depthwise:avx2"; }
  void repack(const OpArgs&) override;
  void run(const OpArgs&) override;

 private:
  void run_block(const DepthwiseGeometry::Block&, const OpArgs&, float* copy) const;

  const DepthwiseGeometry geometry_;
  const Of of_;
  const std::int64_t taps_;
  const std::size_t weights_at_;
};

}  // namespace millrace::cpu
