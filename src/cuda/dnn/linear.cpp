// cuBLAS treats the matrices as column-major: src is in x rows, dst is out x rows, and weight is in x out. So
//
//   dst = weight^T src,   diff_src = weight diff,   diff_weight = src diff^T.
//
// diff_weight is float32, and the multiplication itself writes it or adds to it.
//
// Forward: bias, relu and gelu_tanh are part of the multiplication, as an epilogue. gelu and tanh are separate kernels,
// because cuBLAS does not support them. Backward: the bias gradient is part of the multiplication that computes the
// weight gradient. The gradients of activations are separate kernels, because the multiplication that produced diff_dst
// belongs to the next layer. At fusion level 2, that layer's multiplication includes the gradient of relu or gelu_tanh.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/dnn/linear_matmuls.hpp"
#include "cuda/kernels/conv_kernels.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

class Linear : public Op {
 public:
  Linear(const LinearSpec& s, const LaunchContext& context, Cublas& cublas)
      : context_(context),
        spec_(s),
        rows_(s.src[0]),
        in_(s.src.row_count()),
        out_(s.out_features),
        keeps_pre_(backward_reads_src(s.activation) && s.mode == Mode::train) {
    const bool train = s.mode == Mode::train;
    make_forward(cublas);
    if (s.activation != Activation::none)
      activate_ = make_activation({{rows_, out_}, s.activation, s.dtype, s.mode}, context);
    if (train) {
      if (s.need_diff_src) backward_data_ = cublas.make(backward_data_matmul(s));
      MatmulSpec weights{in_, out_, rows_, false, true, s.dtype, DType::f32, Epilogue::none};
      backward_weights_ = cublas.make(weights);
      // Only for sizes that are multiples of 8: older versions of cuBLAS fail for others, and gain nothing.
      const bool sums = s.bias && !s.consumes_diff_bias;
      if (sums && s.dtype != DType::f32 && rows_ % 8 == 0 && in_ % 8 == 0 && out_ % 8 == 0) {
        weights.epilogue = Epilogue::bias_grad;
        backward_weights_and_bias_ = cublas.find(weights);
      }
    }
    plan(train);
  }

  MemoryRequirements memory_requirements() const override { return needs_; }

  std::string implementation() const override {
    const std::string activation = name_of(spec_.activation);
    std::string text = forward_->name();
    if (fused_bias_ || fused_activation_)
      text += fmt::format(" with{}{}", fused_bias_ ? " bias" : "", fused_activation_ ? " " + activation : "");
    if (spec_.activation != Activation::none && !fused_activation_) {
      text += ", " + activation + " by a kernel";
      if (!why_kernel_.empty()) text += " (" + why_kernel_ + ")";
    }
    if (backward_data_) text += ", backward data " + backward_data_->name();
    if (spec_.accumulates_diff_src) text += " adding to the gradient";
    if (spec_.produces_diff_pre != Activation::none)
      text += fmt::format(" with the gradient of {}{}", name_of(spec_.produces_diff_pre),
                          spec_.produces_diff_bias ? " and bias" : "");
    if (backward_weights_and_bias_)
      text += fmt::format(", backward weights {} with bias", backward_weights_and_bias_->name());
    else if (backward_weights_)
      text += ", backward weights " + backward_weights_->name();
    return text;
  }

  // The multiplication needs a bias of the type of its result.
  void repack(const OpArgs& args) override {
    if (needs_.packed_weights)
      convert(context_, args.packed_weights, spec_.dtype, args.weight[1].data, DType::f32, out_);
  }

  void forward(const OpArgs& args) override {
    const bool activates = spec_.activation != Activation::none && !fused_activation_;
    void* const to = activates && keeps_pre_ ? args.saved : args.dst.data;
    MatmulArgs matmul{.a = args.weight[0].data, .b = args.src[0].data, .d = to, .workspace = args.workspace};
    if (fused_bias_) matmul.bias = needs_.packed_weights ? args.packed_weights : args.weight[1].data;
    if (forward_aux_) matmul.aux = args.saved;
    forward_->run(context_.stream, matmul);
    if (spec_.bias && !fused_bias_) add_bias(context_, to, spec_.dtype, args.weight[1].as<float>(), rows_, out_);
    if (activates) activate_->forward(of_activation(args, to));
  }

  void backward(const OpArgs& args) override {
    const void* diff = args.diff_dst.data;
    if (kernel_before()) {
      void* before = at(args.workspace, diff_at_);
      OpArgs of = of_activation(args, args.saved);
      of.diff_src[0] = activations(before);
      activate_->backward(of);
      diff = before;
    }
    backward_parameters(args, diff);
    if (!backward_data_ || !args.diff_src[0]) return;
    MatmulArgs matmul{.a = args.weight[0].data, .b = diff, .d = args.diff_src[0].data, .workspace = args.workspace};
    if (spec_.accumulates_diff_src) matmul.beta = 1;
    if (spec_.produces_diff_bias) matmul.bias = args.src_diff_bias.data;
    if (spec_.produces_diff_pre != Activation::none) matmul.aux = const_cast<void*>(args.src_saved);
    backward_data_->run(context_.stream, matmul);
  }

 private:
  // Chooses the forward multiplication with the most fused: bias and activation, only the bias, or nothing. If the next
  // layer reads the bits of a relu, the fused kernel must be used; why_not_fused() has checked that it exists.
  void make_forward(Cublas& cublas) {
    const Epilogue wanted = layer_epilogue(spec_);
    if (aux_of(wanted) == Aux::bits)
      forward_ = cublas.make(forward_matmul(spec_, wanted));
    else if (aux_of(wanted) == Aux::values && !aux_is_aligned(spec_.activation, out_))
      why_kernel_ = fmt::format("{} features are not a multiple of 8", out_);
    else if (has_fused_epilogue(spec_.activation))
      forward_ = find_if_faster(cublas, forward_matmul(spec_, wanted),
                                forward_epilogue(Activation::none, spec_.bias, false), 2, why_kernel_);
    fused_activation_ = forward_ != nullptr;
    if (fused_activation_) forward_aux_ = aux_bytes(forward_matmul(spec_, wanted));
    if (!forward_ && spec_.bias) forward_ = cublas.find(forward_matmul(spec_, Epilogue::bias));
    fused_bias_ = forward_ && spec_.bias;
    if (!forward_) forward_ = cublas.make(forward_matmul(spec_, Epilogue::none));
  }

  // Whether a separate kernel computes the gradient of the activation.
  bool kernel_before() const { return spec_.activation != Activation::none && !spec_.consumes_diff_pre; }

  Tensor activations(void* data) const {
    Tensor t;
    t.data = data;
    t.shape = {rows_, out_};
    t.dtype = spec_.dtype;
    return t;
  }
  OpArgs of_activation(const OpArgs& args, void* pre) const {
    OpArgs of;
    of.src[0] = activations(pre);
    of.dst = args.dst;
    of.diff_dst = args.diff_dst;
    return of;
  }

  void backward_parameters(const OpArgs& args, const void* diff) {
    const Tensor &weight = args.diff_weight[0], &bias = args.diff_weight[1];
    MatmulArgs matmul{.a = args.src[0].data,
                      .b = diff,
                      .d = weight.data,
                      .workspace = args.workspace,
                      .beta = args.mode[0] == GradMode::add ? 1.0f : 0.0f};
    if (weight && bias && backward_weights_and_bias_) {
      const bool add = args.mode[1] == GradMode::add;  // the multiplication can only write a bias gradient
      matmul.bias = add ? at(args.workspace, sums_at_) : bias.data;
      backward_weights_and_bias_->run(context_.stream, matmul);
      if (add) accumulate(context_, bias.as<float>(), matmul.bias, DType::f32, out_, GradMode::add);
      return;
    }
    if (weight) backward_weights_->run(context_.stream, matmul);
    if (!bias) return;
    if (spec_.consumes_diff_bias)
      accumulate(context_, bias.as<float>(), args.diff_bias.data, spec_.dtype, out_, args.mode[1]);
    else
      column_sums(context_, bias.as<float>(), {diff, spec_.dtype, rows_, out_}, args.mode[1], args.workspace);
  }

  // Workspace: first the workspace of the multiplications and of column_sums, then the gradient before the activation,
  // then a bias gradient. Saved: the input of the activation, or the aux output of the forward multiplication.
  void plan(bool train) {
    std::size_t scratch = 0;
    for (const Matmul* m :
         {forward_.get(), backward_data_.get(), backward_weights_.get(), backward_weights_and_bias_.get()})
      if (m) scratch = std::max(scratch, m->workspace_bytes());
    if (train && spec_.bias && !spec_.consumes_diff_bias)
      scratch = std::max(scratch, column_sums_bytes(rows_, out_, context_));
    const std::size_t activation_bytes = align64(std::size_t(rows_ * out_) * size_of(spec_.dtype));
    diff_at_ = align64(scratch);
    sums_at_ = diff_at_ + (train && kernel_before() ? activation_bytes : 0);
    needs_.workspace = sums_at_ + (backward_weights_and_bias_ ? align64(std::size_t(out_) * sizeof(float)) : 0);
    needs_.saved = keeps_pre_ ? activation_bytes : align64(forward_aux_);
    needs_.packed_weights =
        fused_bias_ && spec_.dtype != DType::f32 ? align64(std::size_t(out_) * size_of(spec_.dtype)) : 0;
  }

  LaunchContext context_;
  LinearSpec spec_;
  std::int64_t rows_, in_, out_;
  bool keeps_pre_, fused_bias_ = false, fused_activation_ = false;
  std::size_t forward_aux_ = 0;  // bytes that the forward multiplication writes to `saved`
  MemoryRequirements needs_;
  std::string why_kernel_;        // why a kernel computes the activation; "": cuBLAS does not support it
  std::unique_ptr<Op> activate_;  // null without activation
  std::unique_ptr<Matmul> forward_, backward_data_, backward_weights_;
  std::unique_ptr<Matmul> backward_weights_and_bias_;  // null: column_sums() computes the bias gradient
  std::size_t diff_at_ = 0, sums_at_ = 0;              // in the workspace
};

}  // namespace

std::unique_ptr<Op> make_linear(const LinearSpec& spec, const LaunchContext& context, Cublas& cublas) {
  if (spec.out_features < 1 || spec.src.count() < 1)
    fail(Exit::config, "linear: {} -> {} has nothing to compute. give it inputs and outputs", spec.src.str(),
         spec.out_features);
  if (spec.consumes_diff_pre || spec.produces_diff_pre != Activation::none)
    if (const std::string why = why_not_fused(spec, cublas); !why.empty())
      fail(Exit::config, "linear: {} -> {} cannot be fused with its neighbours ({}). use fusion level 1",
           spec.src.str(), spec.out_features, why);
  return std::make_unique<Linear>(spec, context, cublas);
}

}  // namespace millrace::cuda
