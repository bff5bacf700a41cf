// Linear layers with oneDNN's matmul. As in conv.cpp, packed_weights holds the weights in the layouts that matmul
// requires; it is empty if matmul uses the parameter as it is stored. The weight gradient is a matmul with a float32
// result, which it writes or adds.
#include <fmt/core.h>

#include <algorithm>

#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {
namespace {

using onednn::Call, onednn::desc;

// In training, the weights change with every step. For at most this many rows, it takes longer to copy them to another
// layout in memory than the product gains by it. brgemm packs blocks of them in the cache instead. Measured for a step
// of 2048-1024-1024-2: in float32 8 to 12 % shorter with 128 rows, equal with 512 rows, longer with 2048 rows; in bf16
// on Zen 4 23 % shorter with 128 rows, 10 % with 512 rows, equal with 2048 rows. On AMX, bf16 was not measured.
std::int64_t few_rows(DType dtype) {
  if (dtype == DType::f32) return 256;
  return onednn::has_amx() ? 0 : 512;
}

// The operands of the product dst = act(src * weights + bias), without the weights.
struct MatmulOperands {
  desc src, bias, dst;
};
// The layouts that the weights may have.
struct WeightLayouts {
  onednn::dims extents;
  desc stored;  // the layout of the parameter in memory
  desc plain;   // used if oneDNN chooses no blocked layout
};

struct Product {
  Call call;
  desc weights;  // the layout that it reads
};

// Uses the weights as they are stored if that is faster, otherwise a blocked layout that oneDNN chooses.
Product choose_matmul(const LinearSpec& s, const WeightLayouts& weights, const MatmulOperands& operands,
                      Activation activation) {
  const auto with = [&](const desc& layout) {
    return Product{onednn::matmul_call(operands.src, layout, operands.bias, operands.dst, activation), layout};
  };
  if (auto split = onednn::split_matmul_call(operands.src, weights.stored, operands.dst, activation))
    return {split, weights.stored};
  if (s.dtype == DType::f32 && onednn::prefers_float_matmul()) return with(weights.stored);
  if (s.mode == Mode::train && s.src[0] <= few_rows(s.dtype)) {
    auto direct = with(weights.stored);
    if (direct.call.name().starts_with("brg")) return direct;
  }
  const desc chosen =
      onednn::matmul(operands.src, onednn::any(weights.extents, s.dtype), operands.bias, operands.dst, activation)
          .weights_desc();
  return with(chosen != onednn::plain(weights.extents, s.dtype) ? chosen : weights.plain);
}

class Linear : public Op {
 public:
  explicit Linear(const LinearSpec& s)
      : rows_(s.src[0]),
        in_(s.src.row_count()),
        out_(s.out_features),
        dtype_(s.dtype),
        keeps_pre_(backward_reads_src(s.activation) && s.mode == Mode::train),
        activation_(s.activation) {
    const desc src = onednn::plain({rows_, in_}, dtype_), dst = onednn::plain({rows_, out_}, dtype_);
    const desc bias = s.bias ? onednn::plain({1, out_}, DType::f32) : desc();
    // `turned` reads the canonical weight (out, in) as (in, out).
    const desc turned = onednn::strided({in_, out_}, dtype_, {1, in_}), canonical = onednn::plain({out_, in_}, dtype_);

    const auto forward =
        choose_matmul(s, {{in_, out_}, turned, turned}, {src, bias, dst}, keeps_pre_ ? Activation::none : s.activation);
    forward_ = forward.call;
    forward_weight_ = PackedWeight(turned, forward.weights, needs_);

    if (s.mode == Mode::train) {
      if (s.need_diff_src) {
        // Weight rows whose distance is a multiple of 512 bytes map to few cache sets, which halves the speed of
        // oneDNN's GEMM. In that case it gets a copy with longer rows.
        const bool pad = in_ % 128 == 0 && rows_ >= 16;
        const desc plain = pad ? onednn::strided({out_, in_}, dtype_, {in_ + 16, 1}) : canonical;
        const auto data = choose_matmul(s, {{out_, in_}, canonical, plain}, {dst, desc(), src}, Activation::none);
        backward_data_ = data.call;
        backward_weight_ = PackedWeight(canonical, data.weights, needs_);
      }
      const desc turned_diff = onednn::strided({out_, rows_}, dtype_, {1, out_}),
                 gradient = onednn::plain({out_, in_}, DType::f32);
      for (const bool add : {false, true}) {
        backward_weights_[add] = onednn::split_matmul_call(turned_diff, src, gradient, Activation::none, add);
        if (!backward_weights_[add])
          backward_weights_[add] = onednn::matmul_call(turned_diff, src, desc(), gradient, Activation::none, add);
      }
    }
    plan(s);
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    std::string text = forward_.full_name();
    if (backward_data_) text += ", backward data " + backward_data_.name();
    if (backward_weights_[0]) text += ", backward weights " + backward_weights_[0].name();
    return text;
  }

  void repack(const OpArgs& args) override {
    forward_weight_.repack(args);
    backward_weight_.repack(args);
  }

  void forward(const OpArgs& args) override {
    forward_.bind(DNNL_ARG_SRC, args.src[0].data);
    forward_.bind(DNNL_ARG_WEIGHTS, forward_weight_.data(args));
    forward_.bind(DNNL_ARG_BIAS, args.weight[1].data);
    forward_.bind(DNNL_ARG_DST, keeps_pre_ ? args.saved : args.dst.data);
    run(forward_, args);
    if (!keeps_pre_) return;
    activate(activation_, args.dst, before_activation(args));
  }

  void backward(const OpArgs& args) override {
    void* diff = args.diff_dst.data;
    if (activation_ != Activation::none) {
      diff = at(args.workspace, diff_at_);
      activate_backward(activation_, {diff, dtype_, args.diff_dst.shape}, args.diff_dst,
                        keeps_pre_ ? before_activation(args) : args.dst);
    }
    if (args.diff_weight[0]) {
      Call& weights = backward_weights_[args.mode[0] == GradMode::add];
      weights.bind(DNNL_ARG_SRC, diff);
      weights.bind(DNNL_ARG_WEIGHTS, args.src[0].data);
      weights.bind(DNNL_ARG_DST, args.diff_weight[0].data);
      run(weights, args);
    }
    if (args.diff_weight[1]) sum_columns(args.diff_weight[1].as<float>(), {diff, dtype_, {rows_, out_}}, args.mode[1]);
    if (backward_data_ && args.diff_src[0]) {
      backward_data_.bind(DNNL_ARG_SRC, diff);
      backward_data_.bind(DNNL_ARG_WEIGHTS, backward_weight_.data(args));
      backward_data_.bind(DNNL_ARG_DST, args.diff_src[0].data);
      run(backward_data_, args);
    }
  }

 private:
  Tensor before_activation(const OpArgs& args) const { return {args.saved, dtype_, args.dst.shape}; }

  // workspace: oneDNN's scratchpad, then the gradient before the activation. saved: the value before the activation, if
  // its gradient is computed from that.
  void plan(const LinearSpec& s) {
    std::size_t scratch = std::max(forward_weight_.scratch_bytes(), backward_weight_.scratch_bytes());
    for (const Call* call : {&forward_, &backward_data_, &backward_weights_[0], &backward_weights_[1]})
      scratch = std::max(scratch, call->scratch_bytes());
    const std::size_t activation_bytes = align64(std::size_t(rows_ * out_) * size_of(dtype_));
    diff_at_ = align64(scratch);
    needs_.workspace =
        s.mode == Mode::train && s.activation != Activation::none ? diff_at_ + activation_bytes : scratch;
    needs_.saved = keeps_pre_ ? activation_bytes : 0;
  }

  std::int64_t rows_, in_, out_;
  DType dtype_;
  bool keeps_pre_;
  Activation activation_;
  MemoryRequirements needs_;
  Call forward_, backward_data_;
  PackedWeight forward_weight_, backward_weight_;
  Call backward_weights_[2];  // write, add
  std::size_t diff_at_ = 0;   // in the workspace
};

}  // namespace

std::unique_ptr<Op> make_linear(const LinearSpec& spec) {
  if (spec.out_features < 1 || spec.src.count() < 1)
    fail(Exit::config, "linear: {} -> {} has nothing to compute. give it inputs and outputs", spec.src.str(),
         spec.out_features);
  if (spec.consumes_diff_pre || spec.produces_diff_pre != Activation::none)
    fail(Exit::config, "linear: {} -> {} does not share gradients ({}). use fusion level 1", spec.src.str(),
         spec.out_features, linear_fusion_rejection);
  if (spec.mode == Mode::infer && spec.src[0] == 1) return make_row_linear(spec);
  const HalfTensors tensors{.src = {spec.src.count()},
                            .dst = spec.dst().count(),
                            .weight = {spec.weight().count()},
                            .keeps_src = true,
                            .keeps_dst = spec.keeps_dst(),
                            .infer = spec.mode == Mode::infer};
  if (!wants_narrow_linear(spec) || (spec.dtype == DType::bf16 && onednn::has_bf16()))
    return native_or_emulated<Linear>(spec, fmt::format("linear {} -> {}", spec.src.str(), spec.out_features), tensors);
  onednn::type_of(spec.dtype);  // rejects integer types
  auto op = make_narrow_linear(spec);
  return spec.dtype == DType::f32 ? std::move(op) : emulate_half(spec.dtype, std::move(op), tensors);
}

}  // namespace millrace::cpu
