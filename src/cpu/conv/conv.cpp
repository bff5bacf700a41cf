// Convolution with oneDNN. Activations are channels-last. Parameters have the canonical layout (K, kernel...,
// C/groups). packed_weights holds copies of them in layouts of oneDNN, one for forward and one for backward-data,
// because oneDNN computes with plain weights only in slow reference code. The weight gradient is computed in a layout
// of oneDNN in the workspace; then one reorder writes or adds it to the canonical gradient. Other ways to compute are
// faster for 3x3 kernels (cpu/winograd), for small images (kn2row_conv.hpp, kn2row_weight_gradient.hpp), without
// AVX-512 (tile_conv.hpp, tile_weight_gradient.hpp), for depthwise convolutions (depthwise_conv.hpp), and in bf16 for
// 1x1 kernels (cpu/conv_variants/gemm_conv.hpp) and gradients of the source (turned_conv.hpp). conv_parts.hpp chooses.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cpu/common/ops.hpp"
#include "cpu/conv/conv_parts.hpp"
#include "cpu/conv/depthwise_conv.hpp"
#include "cpu/conv/depthwise_weight_gradient.hpp"
#include "cpu/onednn/conv_descs.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/winograd/tiles.hpp"

namespace millrace::cpu {
namespace {

using onednn::Call, onednn::canonical_weight, onednn::conv_shape, onednn::desc;

using Of = ConvPart::Of;

// oneDNN's code for any groups takes many times as long as its code for depthwise convolutions, which it does not have
// for all shapes.
bool lacks_depthwise_code(const ConvSpec& s, const Call& by_onednn) {
  return DepthwiseGeometry::supports(s) && by_onednn.name().find("_dw") == std::string::npos;
}

// A ConvSpec with the methods for its parts.
struct ConvTask : ConvSpec {
  ConvMethods methods;
};

class Conv : public Op {
 public:
  explicit Conv(const ConvTask& s) : bias_count_(s.bias ? s.out_channels : 0), note_(s.methods.note) {
    const bool trains = s.mode == Mode::train, needs_data = trains && s.need_diff_src;
    other_forward_ = make_conv_part(s, Of::forward, s.methods, needs_);
    if (needs_data) other_data_ = make_conv_part(s, Of::data, s.methods, needs_);
    if (trains) other_weights_ = make_weight_gradient_part(s, s.methods);
    if (!other_forward_ || (needs_data && !other_data_) || (trains && !other_weights_)) prepare_onednn(s);
    plan();
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    std::string text = other_forward_ ? other_forward_->implementation() : forward_.full_name();
    if (backward_data_) text += ", backward data " + backward_data_.name();
    if (other_data_) text += ", backward data " + other_data_->implementation();
    if (backward_weights_) text += ", backward weights " + backward_weights_.name();
    if (other_weights_) text += ", backward weights " + other_weights_->implementation();
    return text + note_;
  }

  WorkShare work_share() const override {
    const auto of = [](const std::unique_ptr<ConvPart>& part) { return part ? part->work_share() : 1; };
    const bool data = other_data_ || backward_data_;
    return {of(other_forward_), data ? (of(other_data_) + of(other_weights_)) / 2 : of(other_weights_)};
  }

  void repack(const OpArgs& args) override {
    forward_weight_.repack(args);
    if (other_forward_) other_forward_->repack(args);
    if (other_data_) other_data_->repack(args);
    if (backward_data_ && !shares_copy_) backward_weight_.repack(args);
  }

  void forward(const OpArgs& args) override {
    if (other_forward_) return other_forward_->run(args);
    forward_.bind(DNNL_ARG_SRC, args.src[0].data);
    forward_.bind(DNNL_ARG_WEIGHTS, forward_weight_.data(args));
    forward_.bind(DNNL_ARG_BIAS, args.weight[1].data);
    forward_.bind(DNNL_ARG_DST, args.dst.data);
    run(forward_, args);
  }

  void backward(const OpArgs& args) override {
    if (args.diff_weight[0] || args.diff_weight[1]) other_weights_ ? other_weights_->run(args) : backward_weights(args);
    if (!args.diff_src[0]) return;
    if (other_data_) return other_data_->run(args);
    if (!backward_data_) return;
    backward_data_.bind(DNNL_ARG_DIFF_DST, args.diff_dst.data);
    backward_data_.bind(DNNL_ARG_WEIGHTS, (shares_copy_ ? forward_weight_ : backward_weight_).data(args));
    backward_data_.bind(DNNL_ARG_DIFF_SRC, args.diff_src[0].data);
    run(backward_data_, args);
  }

 private:
  // For the parts that are not computed in another way. oneDNN derives the gradients' code from that of the forward
  // pass.
  void prepare_onednn(const ConvTask& s) {
    const auto shape = conv_shape(s, s.dtype);
    const desc canonical = canonical_weight(s, s.dtype);
    const auto forward = onednn::conv_forward(shape, s.mode);
    forward_ = Call(forward, dnnl::convolution_forward(forward),
                    {{DNNL_ARG_SRC, shape.src},
                     {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                     {DNNL_ARG_BIAS, shape.bias},
                     {DNNL_ARG_DST, shape.dst}});
    if (!other_forward_ && lacks_depthwise_code(s, forward_))
      other_forward_ = std::make_unique<DepthwiseConv>(s, Of::forward, needs_);
    if (!other_forward_) forward_weight_ = PackedWeight(canonical, forward.weights_desc(), needs_);
    if (s.mode != Mode::train) return;
    if (s.need_diff_src && !other_data_) prepare_backward_data(s, shape, forward, canonical);
    if (!other_weights_) prepare_backward_weights(s, shape, forward, canonical_weight(s, DType::f32));
  }

  void prepare_backward_data(const ConvSpec& s, const onednn::ConvShape& shape, const onednn::ConvForward& forward,
                             const desc& canonical) {
    const auto data = onednn::conv_backward_data(shape, forward);
    backward_data_ =
        Call(data, dnnl::convolution_backward_data(data),
             {{DNNL_ARG_DIFF_DST, shape.dst}, {DNNL_ARG_WEIGHTS, data.weights_desc()}, {DNNL_ARG_DIFF_SRC, shape.src}});
    if (lacks_depthwise_code(s, backward_data_)) {
      other_data_ = std::make_unique<DepthwiseConv>(s, Of::data, needs_);
      backward_data_ = {};
      return;
    }
    shares_copy_ = !other_forward_ && data.weights_desc() == forward.weights_desc();
    if (!shares_copy_) backward_weight_ = PackedWeight(canonical, data.weights_desc(), needs_);
  }

  void prepare_backward_weights(const ConvSpec& s, const onednn::ConvShape& shape, const onednn::ConvForward& forward,
                                const desc& canonical_diff) {
    const auto weights = onednn::conv_backward_weights(conv_shape(s, DType::f32), forward);
    Call call(weights, dnnl::convolution_backward_weights(weights),
              {{DNNL_ARG_SRC, shape.src},
               {DNNL_ARG_DIFF_DST, shape.dst},
               {DNNL_ARG_DIFF_WEIGHTS, weights.diff_weights_desc()},
               {DNNL_ARG_DIFF_BIAS, shape.bias}});
    if (lacks_depthwise_code(s, call)) {
      other_weights_ = std::make_unique<DepthwiseWeightGradient>(s);
      return;
    }
    // These weight gradients are wrong where the kernel is dilated (oneDNN 2.6), and NaN for depthwise volumes if the
    // scratchpad holds NaNs (oneDNN 3.6). The caller then computes in float32.
    const bool dilated = std::ranges::any_of(s.window.dilation, [](auto d) { return d > 1; });
    if (call.name().starts_with("jit_bf16") && (dilated || s.groups > 1))
      throw dnnl::error(dnnl_unimplemented, "dilated or grouped bf16 convolution");
    backward_weights_ = std::move(call);
    const desc& from = weights.diff_weights_desc();
    diff_is_canonical_ = from == canonical_diff;
    const auto write = onednn::reorder(from, canonical_diff), add = onednn::reorder(from, canonical_diff, true);
    diff_reorder_[0] = Call(write, dnnl::reorder(write), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, canonical_diff}});
    diff_reorder_[1] = Call(add, dnnl::reorder(add), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, canonical_diff}});
    diff_weight_bytes_ = from.get_size();
  }

  // workspace: the scratchpad of oneDNN, shared by all calls, then the gradients before the reorder.
  void plan() {
    std::size_t scratch = std::max(forward_weight_.scratch_bytes(), backward_weight_.scratch_bytes());
    for (const Call* call : {&forward_, &backward_data_, &backward_weights_, &diff_reorder_[0], &diff_reorder_[1]})
      scratch = std::max(scratch, call->scratch_bytes());
    diff_weight_at_ = align64(scratch);
    diff_bias_at_ = diff_weight_at_ + align64(diff_weight_bytes_);
    needs_.workspace = backward_weights_ ? diff_bias_at_ + align64(std::size_t(bias_count_) * sizeof(float)) : scratch;
    for (const auto* other : {&other_forward_, &other_data_, &other_weights_})
      if (*other) needs_.workspace = std::max(needs_.workspace, (*other)->workspace());
  }

  void backward_weights(const OpArgs& args) {
    const Tensor &weight = args.diff_weight[0], &bias = args.diff_weight[1];
    const bool weight_direct = weight && diff_is_canonical_ && args.mode[0] == GradMode::write;
    const bool bias_direct = bias && args.mode[1] == GradMode::write;
    void* diff_weight = weight_direct ? weight.data : at(args.workspace, diff_weight_at_);
    float* diff_bias = bias_direct ? bias.as<float>() : static_cast<float*>(at(args.workspace, diff_bias_at_));

    backward_weights_.bind(DNNL_ARG_SRC, args.src[0].data);
    backward_weights_.bind(DNNL_ARG_DIFF_DST, args.diff_dst.data);
    backward_weights_.bind(DNNL_ARG_DIFF_WEIGHTS, diff_weight);
    backward_weights_.bind(DNNL_ARG_DIFF_BIAS, diff_bias);
    run(backward_weights_, args);

    if (weight && !weight_direct) {
      Call& reorder = diff_reorder_[args.mode[0] == GradMode::add];
      reorder.bind(DNNL_ARG_FROM, diff_weight);
      reorder.bind(DNNL_ARG_TO, weight.data);
      run(reorder, args);
    }
    if (bias && !bias_direct)
      for (std::int64_t k = 0; k < bias_count_; ++k) bias.as<float>()[k] += diff_bias[k];
  }

  std::int64_t bias_count_;
  std::string note_;
  MemoryRequirements needs_;
  Call forward_, backward_data_, backward_weights_;
  PackedWeight forward_weight_, backward_weight_;
  // Used instead of the calls above where they are faster.
  std::unique_ptr<ConvPart> other_forward_, other_data_, other_weights_;
  Call diff_reorder_[2];  // from the weight gradient in the workspace to the canonical one: write, add
  std::size_t diff_weight_at_ = 0, diff_bias_at_ = 0, diff_weight_bytes_ = 0;  // offsets and size in the workspace
  bool shares_copy_ = false, diff_is_canonical_ = false;
};

// Whether Winograd's filtering computes all parts of a convolution in bf16, which oneDNN cannot here. Otherwise such a
// convolution is emulated.
bool filters_bf16(const ConvSpec& s, const ConvMethods& methods) {
  if (s.dtype != DType::bf16 || onednn::has_bf16() || !winograd::supports(s)) return false;
  const auto filters = [&](ConvPass pass) {
    ConvMethod method = methods.of(pass);
    if (method == ConvMethod::rule) method = method_by_rule(s, pass, methods.winograd);
    return is_winograd(method);
  };
  return filters(ConvPass::forward) &&
         (s.mode == Mode::infer || (filters(ConvPass::weights) && (!s.need_diff_src || filters(ConvPass::data))));
}

}  // namespace

std::unique_ptr<Op> make_conv(const ConvSpec& spec, const ConvMethods& methods) {
  const Shape dst = spec.dst();  // checks the spec
  if (filters_bf16(spec, methods)) return std::make_unique<Conv>(ConvTask{spec, methods});
  return native_or_emulated<Conv>(ConvTask{spec, methods}, fmt::format("conv {} -> {}", spec.src.str(), dst.str()),
                                  {.src = {spec.src.count()},
                                   .dst = dst.count(),
                                   .weight = {spec.weight().count()},
                                   .keeps_src = true,
                                   .infer = spec.mode == Mode::infer});
}

}  // namespace millrace::cpu
