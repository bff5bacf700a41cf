// The gradients of the weights and of the bias of a depthwise convolution of float32 (depthwise_conv.hpp). The sums of
// seven taps and 16 channels stay in registers over the pixels of a block; the blocks' sums are added in memory.
#pragma once
#include "cpu/conv/depthwise_geometry.hpp"

namespace millrace::cpu {

class DepthwiseWeightGradient : public ConvPart {
 public:
  explicit DepthwiseWeightGradient(const ConvSpec&);

  std::size_t workspace() const override { return thread_bytes_ * std::size_t(threads_); }
  std::string implementation() const override { return "depthwise:avx2"; }
  // Computes diff_weight[0] and diff_weight[1] from src[0] and diff_dst, and writes or adds them.
  void run(const OpArgs&) override;

 private:
  struct Memory {  // of one thread
    float *copy, *diff, *sums, *bias;
  };
  Memory memory_of(const OpArgs&, std::int64_t thread) const;
  void copy_diff(float* to, const float* diff, const DepthwiseGeometry::Block&) const;
  void add_block(const Memory&, const OpArgs&, const DepthwiseGeometry::Block&) const;
  void write(const OpArgs&) const;

  const DepthwiseGeometry geometry_;
  const std::int64_t taps_;
  std::int64_t threads_;
  std::size_t diff_at_, sums_at_, bias_at_, thread_bytes_;
};

}  // namespace millrace::cpu
