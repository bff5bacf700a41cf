// A convolution of float32 or bf16 with a kernel for each channel (groups = channels), in one to three dimensions, and
// the gradient of its source.
//
// Arithmetic is float32. Bound: 2 * taps operations for each 8 bytes (bf16: 4) of source and output. Kernels of 3 x 3
// are bound by memory, those of 7 x 7 by arithmetic.
#pragma once
#include "cpu/conv/depthwise_geometry.hpp"

namespace millrace::cpu {

class DepthwiseConv : public ConvPart {
 public:
  // Adds the memory for its copy of the weights to needs.packed_weights.
  DepthwiseConv(const ConvSpec&, Of, MemoryRequirements& needs);

  std::size_t workspace() const override;
  std::string implementation() const override { return "depthwise rows"; }
  void repack(const OpArgs&) override;
  void run(const OpArgs&) override;

 private:
  void run_task(const DepthwiseGeometry::Task&, const OpArgs&, void* memory) const;

  const DepthwiseGeometry geometry_;
  const Of of_;
  const std::size_t weights_at_;
  // Of a thread: the copied rows; the same and, for bf16, 16 channels of a row of outputs.
  const std::size_t rows_bytes_, thread_bytes_;
};

}  // namespace millrace::cpu
