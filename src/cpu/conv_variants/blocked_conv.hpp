// A convolution of oneDNN in the layouts that it prefers, which group channels in blocks, between reorders of the
// channels-last tensors. This pays off where oneDNN's kernel for channels-last tensors is slow
// (docs/benchmarks/2026-11-choice.md).
#pragma once
#include <memory>

#include "cpu/common/conv_methods.hpp"
#include "cpu/common/conv_part.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

class BlockedConv : public ConvPart {
 public:
  // Null if oneDNN has no other layout, or no fast code for it, or if the convolution has a bias. Adds the memory for
  // its copy of the weights to needs.packed_weights.
  static std::unique_ptr<BlockedConv> make(const ConvSpec&, ConvPass, MemoryRequirements& needs);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  void repack(const OpArgs& args) override { weight_.repack(args); }
  void run(const OpArgs&) override;

 private:
  // Reorders between the layout of the caller and that of a copy in the workspace; no call: both are the same.
  struct Copy {
    onednn::Call reorder;
    std::size_t at = 0;
  };
  BlockedConv() = default;
  bool prepare(const ConvSpec&, ConvPass, MemoryRequirements& needs);
  void prepare_gradient(const onednn::desc& from, const onednn::desc& canonical);
  void plan_copy(Copy&, const onednn::desc& from, const onednn::desc& to, const onednn::desc& kept);
  void* read(Copy&, const OpArgs&, const Tensor& from);
  void run_weights(const OpArgs&);

  ConvPass pass_ = ConvPass::forward;
  onednn::Call call_;
  PackedWeight weight_;
  Copy src_, dst_;            // of src or diff_src, of dst or diff_dst
  onednn::Call write_, add_;  // the gradient of the weights to the canonical one
  std::size_t gradient_at_ = 0, scratch_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
