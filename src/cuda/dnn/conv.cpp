// Convolution with cuDNN; depthwise ones have kernels of millrace's own. Activations and weights have the layouts that
// cuDNN calls channels-last, so nothing is reordered. Two things differ for 16-bit types. cuDNN computes weight
// gradients in 16 bits only, so they go through the workspace to the float32 gradient. And the convolution needs a
// 16-bit bias, so packed_weights holds a converted copy.
//
// Images with few channels (such as 3) in 16 bits: engines read vectors of 4 or 8 channels, and cuDNN pads to 8
// channels in a workspace at every call. The operation can do that itself, with padded weights in packed_weights. It
// uses the faster of the two or, if they are not timed, the one with less memory. Images that already come with padding
// channels need no copy.
#include "cuda/dnn/conv.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cuda/dnn/conv_candidate.hpp"
#include "cuda/kernels/conv_kernels.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cuda {
namespace {

using cudnn::Call, cudnn::ConvProblem, cudnn::Cudnn, cudnn::Direction;

class Conv : public Op {
 public:
  Conv(const ConvSpec& s, const LaunchContext& context, Cudnn& library)
      : spec_(s), context_(context), handle_(library.handle()) {
    if (s.produces_sums && s.bias)
      fail(Exit::config, "conv {}: cuDNN has no engine that computes sums with a bias", s.src.str());
    if (s.accumulates_diff_src && s.produces_diff_sums)
      fail(Exit::config, "conv {}: cuDNN has no engine that adds to a gradient and sums it", s.src.str());
    if (s.normalises_src && !s.produces_diff_sums)
      fail(Exit::config, "conv {}: only a convolution that computes the gradient sums of a norm can apply it",
           s.src.str());
    if (s.normalises_diff_dst || s.norm_activation != Activation::relu)
      fail(Exit::config, "conv {}: cuDNN has no engine for the gradient of a norm or for relu6", s.src.str());
    ConvCandidate candidate = best_candidate(s, library);
    wide_ = candidate.channels;
    fused_bias_ = candidate.bias;
    own_ = s.src[-1] - s.padded_channels;
    const ConvProblem weights = weights_problem(s, wide_);
    if (candidate.weights) weights_ = Call(std::move(candidate.weights->plan), weights);
    forward_ = Call(std::move(candidate.forward->plan), forward_problem(s, wide_, fused_bias_));
    if (s.mode == Mode::train && s.need_diff_src) {
      auto choice = library.choose(data_problem(s));
      if (!choice)
        fail(Exit::config,
             "cuDNN {} has no engine for the gradient of the convolution {} -> {} in {}. choose another run.precision",
             cudnnGetVersion(), s.src.str(), s.dst().str(), name_of(s.dtype));
      data_ = Call(std::move(choice->plan), data_problem(s));
    }
    if (weights_ && s.dtype == DType::f32 && !widens_weight()) {
      ConvProblem add = weights;
      add.add = true;
      if (auto choice = library.choose(add)) weights_add_ = Call(std::move(choice->plan), add);
    }
    plan();
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    std::string text = "cudnn " + forward_.plan().engine();
    if (spec_.normalises_src) text += " after norm and relu";
    if (spec_.produces_sums) text += " with sums";
    if (data_) text += ", backward data " + data_.plan().engine();
    if (spec_.produces_diff_sums) text += " with sums";
    if (spec_.accumulates_diff_src) text += " adding to the gradient";
    if (weights_) text += ", backward weights " + weights_.plan().engine();
    if (weights_ && spec_.normalises_src) text += " after norm and relu";
    if (widens_weight()) text += fmt::format(", {} channels", wide_);
    if (spec_.bias && !fused_bias_) text += ", bias by a kernel";
    return text;
  }

  void repack(const OpArgs& args) override {
    if (widens_weight())
      copy_channels(context_, {at(args.packed_weights, 0), spec_.dtype, wide_},
                    {args.weight[0].data, spec_.dtype, own_}, weight_rows());
    if (copies_bias())
      convert(context_, at(args.packed_weights, bias_at_), spec_.dtype, args.weight[1].data, DType::f32,
              spec_.out_channels);
  }

  void forward(const OpArgs& args) override {
    void* weight = widens_weight() ? at(args.packed_weights, 0) : args.weight[0].data;
    std::vector<void*> pointers{wide_src(args), weight, args.dst.data};
    if (fused_bias_) pointers.push_back(copies_bias() ? at(args.packed_weights, bias_at_) : args.weight[1].data);
    if (spec_.produces_sums)
      for (const int k : {0, 1}) pointers.push_back(args.sums.as<float>() + k * spec_.out_channels);
    add_affine(pointers, args);
    forward_.run(handle_, std::move(pointers), args.workspace);
    if (spec_.bias && !fused_bias_)
      add_bias(context_, args.dst.data, spec_.dtype, args.weight[1].as<float>(), dst_rows(), spec_.out_channels);
  }

  void backward(const OpArgs& args) override {
    if (args.diff_weight[1])
      column_sums(context_, args.diff_weight[1].as<float>(),
                  {args.diff_dst.data, spec_.dtype, dst_rows(), spec_.out_channels}, args.mode[1], args.workspace);
    if (args.diff_weight[0]) backward_weights(args);
    if (data_ && args.diff_src[0]) backward_data(args);
  }

 private:
  bool widens_src() const { return wide_ != spec_.src[-1]; }
  bool widens_weight() const { return spec_.groups == 1 && wide_ != own_; }
  bool copies_bias() const { return fused_bias_ && spec_.dtype != DType::f32; }
  std::int64_t dst_rows() const { return dst_rows_; }
  std::int64_t weight_rows() const { return weight_rows_; }

  // Workspace: first that of cuDNN or column_sums(), then src with padding channels, then the 16-bit weight gradient.
  // Unused outputs of backward_data take the place of the latter two.
  void plan() {
    const Shape dst = spec_.dst(), weight = spec_.weight();
    dst_rows_ = dst.count() / dst[-1];
    weight_rows_ = weight.count() / weight[-1];
    const std::size_t element = size_of(spec_.dtype);
    std::size_t own = 0;
    for (const Call* call : {&forward_, &data_, &weights_, &weights_add_}) own = std::max(own, call->workspace_bytes());
    if (weights_ && spec_.bias) own = std::max(own, column_sums_bytes(dst_rows_, spec_.out_channels, context_));
    src_at_ = unused_at_ = align64(own);
    diff_weight_at_ =
        src_at_ + (widens_src() ? align64(std::size_t(spec_.src.count() / spec_.src[-1] * wide_) * element) : 0);
    needs_.workspace = diff_weight_at_;
    const std::size_t weight_bytes = align64(std::size_t(weight_rows_ * weight_channels()) * element);
    if (weights_ && !weights_add_) needs_.workspace += weight_bytes;
    if (spec_.produces_diff_sums) needs_.workspace = std::max(needs_.workspace, unused_at_ + 3 * unused_bytes());
    if (widens_weight()) needs_.packed_weights = bias_at_ = weight_bytes;
    if (copies_bias()) needs_.packed_weights += align64(std::size_t(spec_.out_channels) * element);
  }

  std::size_t unused_bytes() const { return align64(std::size_t(spec_.src[-1]) * sizeof(float)); }
  std::int64_t weight_channels() const { return wide_ / spec_.groups; }

  // The scale and the bias of the norm, of which src is the source.
  void add_affine(std::vector<void*>& pointers, const OpArgs& args) const {
    if (!spec_.normalises_src) return;
    for (const std::int64_t k : {0, 1})
      pointers.push_back(at(args.affine.data, std::size_t(k * spec_.src[-1]) * size_of(spec_.dtype)));
  }

  void* wide_src(const OpArgs& args) const {
    if (!widens_src()) return args.src[0].data;
    void* wide = at(args.workspace, src_at_);
    copy_channels(context_, {wide, spec_.dtype, wide_}, {args.src[0].data, spec_.dtype, spec_.src[-1]},
                  spec_.src.count() / spec_.src[-1]);
    return wide;
  }

  void backward_data(const OpArgs& args) {
    std::vector<void*> pointers{args.diff_src[0].data, args.weight[0].data, args.diff_dst.data};
    if (spec_.produces_diff_sums) {
      const std::int64_t channels = spec_.src[-1];
      float *moments = args.moments.as<float>(), *sums = args.diff_sums.as<float>();
      pointers.insert(pointers.end(), {args.norm_src.data, moments, moments + channels, args.weight[2].data,
                                       args.weight[3].data, sums, sums + channels});
      for (const std::size_t k : {0, 1, 2}) pointers.push_back(at(args.workspace, unused_at_ + k * unused_bytes()));
    }
    data_.run(handle_, std::move(pointers), args.workspace);
  }

  void backward_weights(const OpArgs& args) {
    const Tensor& gradient = args.diff_weight[0];
    const bool add = args.mode[0] == GradMode::add;
    const bool direct = spec_.dtype == DType::f32 && !widens_weight() && (!add || weights_add_);
    void* diff = direct ? gradient.data : at(args.workspace, diff_weight_at_);
    Call& call = direct && add ? weights_add_ : weights_;
    std::vector<void*> pointers{wide_src(args), diff, args.diff_dst.data};
    add_affine(pointers, args);
    call.run(handle_, std::move(pointers), args.workspace);
    if (direct) return;
    if (widens_weight())
      copy_channels(context_, {gradient.data, DType::f32, own_}, {diff, spec_.dtype, wide_}, weight_rows(),
                    args.mode[0]);
    else
      accumulate(context_, gradient.as<float>(), diff, spec_.dtype, gradient.count(), args.mode[0]);
  }

  ConvSpec spec_;
  LaunchContext context_;
  cudnnHandle_t handle_;
  std::int64_t own_ = 0, wide_ = 0;  // channels of the weights, and those that cuDNN sees
  std::int64_t dst_rows_ = 0, weight_rows_ = 0;
  bool fused_bias_ = false;
  Call forward_, data_, weights_, weights_add_;
  std::size_t src_at_ = 0, diff_weight_at_ = 0, unused_at_ = 0;  // in the workspace
  std::size_t bias_at_ = 0;                                      // in packed_weights
  MemoryRequirements needs_;
};

}  // namespace

std::unique_ptr<Op> make_conv(const ConvSpec& spec, const LaunchContext& context, Cudnn& library) {
  spec.dst();  // checks the spec
  if (is_depthwise(spec) && !spec.produces_sums && !spec.produces_diff_sums && !spec.normalises_src)
    return make_depthwise_conv(spec, context);
  return std::make_unique<Conv>(spec, context, library);
}

}  // namespace millrace::cuda
