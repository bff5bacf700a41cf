// The gradients of the weights and of the bias of a depthwise convolution (depthwise_conv.hpp). Each thread
// has sums of its own, which are added up at the end.
#pragma once
#include "cpu/conv/depthwise_geometry.hpp"

namespace millrace::cpu {

class DepthwiseWeightGradient : public ConvPart {
 public:
  explicit DepthwiseWeightGradient(const ConvSpec&);

  std::size_t workspace() const override { return thread_bytes_ * std::size_t(threads_); }
  std::string implementation() const override { return "depthwise rows"; }
  // Computes diff_weight[0] and diff_weight[1] from src[0] and diff_dst, and writes or adds them.
  void run(const OpArgs&) override;

 private:
  struct Memory {  // of one thread
    void* rows;
    float *diff, *sums, *bias;  // 16 channels of a row; (panels, kernel..., 16 channels); (panels, 16 channels)
  };
  Memory memory_of(const OpArgs&, std::int64_t thread) const;
  void add_task(const Memory&, const OpArgs&, const DepthwiseGeometry::Task&) const;
  void write(const OpArgs&) const;

  const DepthwiseGeometry geometry_;
  std::int64_t threads_;
  std::size_t diff_at_, sums_at_, bias_at_, thread_bytes_;
};

}  // namespace millrace::cpu
