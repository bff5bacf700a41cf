#include "cpu/conv_variants/blocked_conv.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cpu/onednn/conv_descs.hpp"

namespace millrace::cpu {

using onednn::Call, onednn::desc;

std::unique_ptr<BlockedConv> BlockedConv::make(const ConvSpec& s, ConvPass pass, MemoryRequirements& needs) {
  if (s.bias || s.groups > 1) return nullptr;
  MemoryRequirements with = needs;
  try {
    std::unique_ptr<BlockedConv> out(new BlockedConv);
    if (!out->prepare(s, pass, with)) return nullptr;
    needs = with;
    return out;
  } catch (const dnnl::error&) {  // no implementation
    return nullptr;
  }
}

// Memory for copies follows the scratchpad, whose size is not known yet; `at` counts from its end.
void BlockedConv::plan_copy(Copy& copy, const desc& from, const desc& to, const desc& kept) {
  if (from == to) return;
  const auto pd = onednn::reorder(from, to);
  copy.reorder = Call(pd, dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  copy.at = workspace_;
  workspace_ += align64(kept.get_size());
  scratch_ = std::max(scratch_, copy.reorder.scratch_bytes());
}

void BlockedConv::prepare_gradient(const desc& from, const desc& canonical) {
  const auto write = onednn::reorder(from, canonical), add = onednn::reorder(from, canonical, true);
  write_ = Call(write, dnnl::reorder(write), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, canonical}});
  add_ = Call(add, dnnl::reorder(add), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, canonical}});
  scratch_ = std::max({scratch_, write_.scratch_bytes(), add_.scratch_bytes()});
  gradient_at_ = workspace_;
  workspace_ += align64(from.get_size());
}

bool BlockedConv::prepare(const ConvSpec& s, ConvPass pass, MemoryRequirements& needs) {
  pass_ = pass;
  onednn::ConvShape shape = onednn::conv_shape(s, s.dtype);
  const desc src = shape.src, dst = shape.dst;
  const auto free_layout = [&](const Shape& of) {
    onednn::dims d{of[0], of[-1]};
    for (int axis = 1; axis < of.rank - 1; ++axis) d.push_back(of[axis]);
    return onednn::any(d, s.dtype);
  };
  shape.src = free_layout(s.src);
  shape.dst = free_layout(s.dst());
  const auto forward = onednn::conv_forward(shape, s.mode);
  desc own_src = forward.src_desc(), own_dst = forward.dst_desc();
  if (pass == ConvPass::forward) {
    call_ = Call(forward, dnnl::convolution_forward(forward),
                 {{DNNL_ARG_SRC, own_src}, {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, own_dst}});
    weight_ = PackedWeight(onednn::canonical_weight(s, s.dtype), forward.weights_desc(), needs);
  } else if (pass == ConvPass::data) {
    const auto data = onednn::conv_backward_data(shape, forward);
    own_src = data.diff_src_desc();
    own_dst = data.diff_dst_desc();
    call_ = Call(data, dnnl::convolution_backward_data(data),
                 {{DNNL_ARG_DIFF_DST, own_dst}, {DNNL_ARG_WEIGHTS, data.weights_desc()}, {DNNL_ARG_DIFF_SRC, own_src}});
    weight_ = PackedWeight(onednn::canonical_weight(s, s.dtype), data.weights_desc(), needs);
  } else {
    shape.weight = onednn::any(onednn::weight_dims(s), DType::f32);
    const auto weights = onednn::conv_backward_weights(shape, forward);
    own_src = weights.src_desc();
    own_dst = weights.diff_dst_desc();
    call_ = Call(
        weights, dnnl::convolution_backward_weights(weights),
        {{DNNL_ARG_SRC, own_src}, {DNNL_ARG_DIFF_DST, own_dst}, {DNNL_ARG_DIFF_WEIGHTS, weights.diff_weights_desc()}});
    prepare_gradient(weights.diff_weights_desc(), onednn::canonical_weight(s, DType::f32));
  }
  // Those of dilated bf16 kernels are wrong; see conv.cpp.
  const bool dilated = std::ranges::any_of(s.window.dilation, [](auto d) { return d > 1; });
  if (call_.name().find("ref") != std::string::npos || (own_src == src && own_dst == dst) ||
      (pass == ConvPass::weights && s.dtype != DType::f32 && dilated))
    return false;
  pass == ConvPass::data ? plan_copy(src_, own_src, src, own_src) : plan_copy(src_, src, own_src, own_src);
  pass == ConvPass::forward ? plan_copy(dst_, own_dst, dst, own_dst) : plan_copy(dst_, dst, own_dst, own_dst);
  scratch_ = align64(std::max({scratch_, call_.scratch_bytes(), weight_.scratch_bytes()}));
  workspace_ += scratch_;
  return true;
}

std::string BlockedConv::implementation() const { return fmt::format("{} in blocks of channels", call_.name()); }

void* BlockedConv::read(Copy& copy, const OpArgs& args, const Tensor& from) {
  if (!copy.reorder) return from.data;
  void* to = at(args.workspace, scratch_ + copy.at);
  copy.reorder.bind(DNNL_ARG_FROM, from.data);
  copy.reorder.bind(DNNL_ARG_TO, to);
  cpu::run(copy.reorder, args);
  return to;
}

void BlockedConv::run(const OpArgs& args) {
  if (pass_ == ConvPass::weights) return run_weights(args);
  const bool forward = pass_ == ConvPass::forward;
  Copy &from = forward ? src_ : dst_, &to = forward ? dst_ : src_;
  const Tensor& result = forward ? args.dst : args.diff_src[0];
  void* own = to.reorder ? at(args.workspace, scratch_ + to.at) : result.data;
  call_.bind(forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, read(from, args, forward ? args.src[0] : args.diff_dst));
  call_.bind(DNNL_ARG_WEIGHTS, weight_.data(args));
  call_.bind(forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, own);
  cpu::run(call_, args);
  if (!to.reorder) return;
  to.reorder.bind(DNNL_ARG_FROM, own);
  to.reorder.bind(DNNL_ARG_TO, result.data);
  cpu::run(to.reorder, args);
}

void BlockedConv::run_weights(const OpArgs& args) {
  if (!args.diff_weight[0]) return;
  void* gradient = at(args.workspace, scratch_ + gradient_at_);
  call_.bind(DNNL_ARG_SRC, read(src_, args, args.src[0]));
  call_.bind(DNNL_ARG_DIFF_DST, read(dst_, args, args.diff_dst));
  call_.bind(DNNL_ARG_DIFF_WEIGHTS, gradient);
  cpu::run(call_, args);
  Call& reorder = args.mode[0] == GradMode::add ? add_ : write_;
  reorder.bind(DNNL_ARG_FROM, gradient);
  reorder.bind(DNNL_ARG_TO, args.diff_weight[0].data);
  cpu::run(reorder, args);
}

}  // namespace millrace::cpu
