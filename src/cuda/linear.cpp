// Column-major, as cuBLAS sees them: src is in x rows, dst out x rows, weight in x out. So
//   dst = weight^T src,   diff_src = weight diff,   diff_weight = src diff^T,
// the last one into float32, written or added to by the product itself.
// Bias and relu ride on the forward product. cuBLAS knows gelu only by its tanh approximation; gelu and tanh are
// kernels, as are all three on the way back, since the product before belongs to another layer.
#include "linear.hpp"

#include <algorithm>

#include "conv_kernels.hpp"
#include "kernels.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
void* at(void* base, std::size_t bytes) { return static_cast<char*>(base) + bytes; }

class Linear : public Op {
 public:
  Linear(const LinearSpec& s, const Context& context, Cublas& cublas)
      : context_(context),
        rows_(s.src[0]),
        in_(s.src.row_count()),
        out_(s.out_features),
        dtype_(s.dtype),
        bias_(s.bias),
        keeps_pre_(s.activation == Activation::gelu && s.mode == Mode::train),
        activation_(s.activation) {
    MatmulSpec forward{out_, rows_, in_, true, false, dtype_, dtype_, Epilogue::none};
    const bool relu = activation_ == Activation::relu;
    if (bias_ || relu) {
      MatmulSpec fused = forward;
      fused.epilogue = bias_ && relu ? Epilogue::bias_relu : bias_ ? Epilogue::bias : Epilogue::relu;
      forward_ = cublas.find(fused);
      fused_bias_ = forward_ && bias_, fused_relu_ = forward_ && relu;
    }
    if (!forward_) forward_ = cublas.make(forward);
    if (activation_ != Activation::none)
      activate_ = make_activation({{rows_, out_}, activation_, dtype_, s.mode}, context);
    if (s.mode == Mode::train) {
      if (s.need_diff_src)
        backward_data_ = cublas.make({in_, rows_, out_, false, false, dtype_, dtype_, Epilogue::none});
      MatmulSpec weights{in_, out_, rows_, false, true, dtype_, DType::f32, Epilogue::none};
      backward_weights_ = cublas.make(weights);
      // Older versions of cuBLAS failed on odd shapes here; they gain nothing by it either.
      if (bias_ && dtype_ != DType::f32 && rows_ % 8 == 0 && in_ % 8 == 0 && out_ % 8 == 0) {
        weights.epilogue = Epilogue::bias_grad;
        backward_weights_and_bias_ = cublas.find(weights);
      }
    }
    plan(s.mode == Mode::train);
  }

  Needs needs() const override { return needs_; }

  std::string implementation() const override {
    std::string text = forward_->name();
    if (fused_bias_ || fused_relu_) text += cat(" with", fused_bias_ ? " bias" : "", fused_relu_ ? " relu" : "");
    if (backward_data_) text += ", backward data " + backward_data_->name();
    if (backward_weights_and_bias_)
      text += cat(", backward weights ", backward_weights_and_bias_->name(), " with bias");
    else if (backward_weights_)
      text += ", backward weights " + backward_weights_->name();
    return text;
  }

  // The product adds a bias of its result's type.
  void refresh(const OpArgs& args) override {
    if (needs_.derived) convert(context_, args.derived, dtype_, args.weight[1].data, DType::f32, out_);
  }

  void forward(const OpArgs& args) override {
    void* pre = keeps_pre_ ? args.saved : args.dst.data;
    void* bias = !fused_bias_ ? nullptr : needs_.derived ? args.derived : args.weight[1].data;
    forward_->run(context_.stream, 1, args.weight[0].data, args.src[0].data, 0, pre, bias, args.workspace);
    if (bias_ && !fused_bias_) add_bias(context_, pre, dtype_, args.weight[1].as<float>(), rows_, out_);
    if (activation_ != Activation::none && !fused_relu_) activate_->forward(of_activation(args, pre));
  }

  void backward(const OpArgs& args) override {
    const void* diff = args.diff_dst.data;
    if (activation_ != Activation::none) {
      void* before = at(args.workspace, diff_at_);
      OpArgs of = of_activation(args, args.saved);
      of.diff_src[0] = activations(before);
      activate_->backward(of);
      diff = before;
    }
    backward_parameters(args, diff);
    if (backward_data_ && args.diff_src[0])
      backward_data_->run(context_.stream, 1, args.weight[0].data, diff, 0, args.diff_src[0].data, nullptr,
                          args.workspace);
  }

 private:
  Tensor activations(void* data) const {
    Tensor t;
    t.data = data, t.shape = {rows_, out_}, t.dtype = dtype_;
    return t;
  }
  OpArgs of_activation(const OpArgs& args, void* pre) const {
    OpArgs of;
    of.src[0] = activations(pre), of.dst = args.dst, of.diff_dst = args.diff_dst;
    return of;
  }

  void backward_parameters(const OpArgs& args, const void* diff) {
    const Tensor &weight = args.diff_weight[0], &bias = args.diff_weight[1];
    const float onto = args.mode[0] == GradMode::add ? 1.0f : 0.0f;
    if (weight && bias && backward_weights_and_bias_) {
      const bool add = args.mode[1] == GradMode::add;  // the product can only write a bias gradient
      void* sums = add ? at(args.workspace, sums_at_) : bias.data;
      backward_weights_and_bias_->run(context_.stream, 1, args.src[0].data, diff, onto, weight.data, sums,
                                      args.workspace);
      if (add) accumulate(context_, bias.as<float>(), sums, DType::f32, out_, GradMode::add);
      return;
    }
    if (weight)
      backward_weights_->run(context_.stream, 1, args.src[0].data, diff, onto, weight.data, nullptr, args.workspace);
    if (bias) row_sums(context_, bias.as<float>(), diff, dtype_, rows_, out_, args.mode[1], args.workspace);
  }

  // Workspace: scratch of the products and of row_sums, the gradient before the activation, a bias gradient.
  void plan(bool train) {
    std::size_t scratch = 0;
    for (const Matmul* m :
         {forward_.get(), backward_data_.get(), backward_weights_.get(), backward_weights_and_bias_.get()})
      if (m) scratch = std::max(scratch, m->workspace_bytes());
    if (train && bias_) scratch = std::max(scratch, row_sums_bytes(rows_, out_, context_));
    const std::size_t activation_bytes = align64(std::size_t(rows_ * out_) * size_of(dtype_));
    diff_at_ = align64(scratch);
    sums_at_ = diff_at_ + (train && activation_ != Activation::none ? activation_bytes : 0);
    needs_.workspace = sums_at_ + (backward_weights_and_bias_ ? align64(std::size_t(out_) * sizeof(float)) : 0);
    needs_.saved = keeps_pre_ ? activation_bytes : 0;
    needs_.derived = fused_bias_ && dtype_ != DType::f32 ? align64(std::size_t(out_) * size_of(dtype_)) : 0;
  }

  Context context_;
  std::int64_t rows_, in_, out_;
  DType dtype_;
  bool bias_, keeps_pre_, fused_bias_ = false, fused_relu_ = false;
  Activation activation_;
  Needs needs_;
  std::unique_ptr<Op> activate_;  // null without activation
  std::unique_ptr<Matmul> forward_, backward_data_, backward_weights_;
  std::unique_ptr<Matmul> backward_weights_and_bias_;  // null: row_sums
  std::size_t diff_at_ = 0, sums_at_ = 0;              // in the workspace
};

}  // namespace

std::unique_ptr<Op> make_linear(const LinearSpec& spec, const Context& context, Cublas& cublas) {
  if (spec.out_features < 1 || spec.src.count() < 1)
    fail(Exit::config, "linear: ", spec.src.str(), " -> ", spec.out_features,
         " has nothing to compute. give it inputs and outputs");
  return std::make_unique<Linear>(spec, context, cublas);
}

}  // namespace millrace::cuda
