// The gradient of the source of a convolution of stride 1 as a convolution of diff_dst, with weights whose taps are
// turned by 180 degrees and whose input and output channels have changed places. In bf16 on AMX, oneDNN's code for a
// forward convolution is faster than that for the gradient of the source.
#pragma once
#include <memory>

#include "cpu/common/conv_part.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

class TurnedConv : public ConvPart {
 public:
  // bf16, stride 1, no groups, more than one tap, padding less than the extent of the kernel.
  static bool supports(const ConvSpec&);
  // Whether this is faster than oneDNN's gradient of the source, turning the weights included.
  static bool is_faster(const ConvSpec&);
  // Null if the convolution is not supported, or if oneDNN has no fast code for the turned one.
  static std::unique_ptr<TurnedConv> make(const ConvSpec&, MemoryRequirements& needs);

  std::size_t workspace() const override { return turned_at_ + turned_bytes_; }
  std::string implementation() const override { return forward_.full_name() + " of turned weights"; }
  void repack(const OpArgs&) override;
  void run(const OpArgs&) override;

 private:
  TurnedConv(const ConvSpec&, const onednn::ConvForward&, MemoryRequirements& needs);

  const std::int64_t in_, out_, taps_;  // channels of the source and the result of the convolution of ConvSpec
  onednn::Call forward_;
  PackedWeight weight_;
  std::size_t turned_at_, turned_bytes_;  // of the turned weights, during repack()
};

}  // namespace millrace::cpu
