// What the CUDA backend fuses, known without its libraries. The rules are those of docs/reference/gpu-status.md
// ("Fusion levels 2 and 3"). A build with cuDNN asks the library instead, and with cuda.autotune it times the
// candidates, so it may fuse less.
#pragma once
#include "millrace/ops/backend.hpp"

namespace millrace::roofline {

class CudaFusionRules : public FusionRules {
 public:
  int max_fusion_level() const override { return 3; }
  int default_fusion_level() const override { return 1; }
  std::int64_t padded_channels(const ConvSpec&) override;
  bool merges_norm(const BatchNormSpec& s) const override { return s.activation != Activation::relu6; }
  std::string why_not_fused(const Spec&) override;
};

// The channels of src that the convolution kernels read: more than src has if engines for 16-bit types need padding.
// The operation then copies src into a padded one, before the forward pass and before the weight gradient.
std::int64_t kernel_channels(const ConvSpec&);

}  // namespace millrace::roofline
