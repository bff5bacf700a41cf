// Backend: makes the operations of a network. `Spec` lists all operations. A new operation needs its own files, and one
// line here and in each backend.
#pragma once
#include <memory>
#include <variant>

#include "millrace/device/device.hpp"
#include "millrace/ops/attention.hpp"
#include "millrace/ops/batch_norm.hpp"
#include "millrace/ops/blocks.hpp"
#include "millrace/ops/conv.hpp"
#include "millrace/ops/documents.hpp"
#include "millrace/ops/elementwise.hpp"
#include "millrace/ops/embedding.hpp"
#include "millrace/ops/group_norm.hpp"
#include "millrace/ops/input.hpp"
#include "millrace/ops/layer_norm.hpp"
#include "millrace/ops/linear.hpp"
#include "millrace/ops/linear_cross_entropy.hpp"
#include "millrace/ops/loss.hpp"
#include "millrace/ops/matmul.hpp"
#include "millrace/ops/mix.hpp"
#include "millrace/ops/move_labels.hpp"
#include "millrace/ops/optimizer.hpp"
#include "millrace/ops/pool.hpp"
#include "millrace/ops/position_embedding.hpp"
#include "millrace/ops/recurrent.hpp"
#include "millrace/ops/rotary.hpp"
#include "millrace/ops/transposed_conv.hpp"
#include "millrace/ops/upsample.hpp"

namespace millrace {

using Spec = std::variant<ConvSpec, LinearSpec, BatchNormSpec, PoolSpec, ActivationSpec, AddSpec, DropoutSpec,
                          InputSpec, CrossEntropySpec, PointwiseLossSpec, EmbeddingSpec, LayerNormSpec, AttentionSpec,
                          PositionEmbeddingSpec, GatedSpec, ScaleSpec, RotarySpec, ConcatSpec, SliceSpec, UpsampleSpec,
                          TransposedConvSpec, GroupNormSpec, ScaleBySpec, ReshapeSpec, MoveLabelsSpec, MixSpec,
                          DocumentsSpec, LinearCrossEntropySpec, GatherSpec, AffineSpec, PowerSpec, IndexedBiasSpec,
                          SoftmaxSpec, BatchedMatmulSpec, RecurrentSpec, PreluSpec>;
const char* name_of(const Spec&);  // "conv", "linear", ...
// The backward pass reads src, or dst. A loss has no backward pass.
bool keeps_src(const Spec&);
bool keeps_dst(const Spec&);
double flops_of(const Spec&);            // of the forward pass; 0 for operations bound by memory bandwidth
std::int64_t metric_count(const Spec&);  // of the losses: see loss.hpp; 0 for all others
// Of a loss: what LossSums counts of a row if no label is ignored, and its place among the losses.
std::int64_t terms_of_row(const Spec&);
const LossTerm& loss_term(const Spec&);

// The minimal work of an operation, from which its roofline is computed. `bytes` counts a tensor once for each pass
// that must read or write all of it before the next pass can begin. For example, a batch norm reads its source twice.
struct Cost {
  double flops = 0, bytes = 0;
};
Cost forward_cost(const Spec&);
Cost backward_cost(const Spec&);

// Graph rewrites that a backend may support, with the fusion level from which each one is used. Level 0 uses none.
// Level 1 merges nodes, and lets convolutions and linear layers add to a gradient that another node wrote. At level 2,
// nodes also compute parts of their neighbours and share values with them: the convolutions around a batch norm compute
// its sums in the forward and in the backward pass, and a linear layer computes the gradient of the activation before
// it. At level 3, a convolution also normalises what it reads, so that the result of a norm with ReLU is never stored,
// and computes the gradient of the norm behind it.
enum class Fusion {
  batch_norm_relu = 1,
  batch_norm_add_relu = 1,
  batch_norm_add_batch_norm = 1,
  batch_norm_relu_max_pool = 1,
  linear_activation = 1,
  input_channels = 1,
  gradient_accumulation = 1,
  conv_sums = 2,
  conv_diff_sums = 2,
  linear_diff_pre = 2,
  conv_normalises_src = 3,
  conv_normalises_diff_dst = 3
};

// Which of these rewrites a backend supports. It is separate from Backend, so that a model of a backend can answer too
// (roofline/cuda_fusion.hpp).
class FusionRules {
 public:
  virtual ~FusionRules() = default;
  virtual int max_fusion_level() const = 0;
  virtual int default_fusion_level() const { return max_fusion_level(); }  // used if the user sets none
  // Fusion level 1, for a convolution of images without diff_src: how many channels of zeros, appended to the images,
  // make it faster. Collective like Backend::make().
  virtual std::int64_t padded_channels(const ConvSpec&) { return 0; }
  // Fusion level 1, for a batch norm that takes in the norm of its residual, a max pool or ReLU6: whether
  // Backend::make() supports it.
  virtual bool merges_norm(const BatchNormSpec&) const { return false; }
  // Fusion level 1: whether Backend::make() supports attention in which only some positions ask.
  virtual bool has_partial_attention() const { return false; }
  // Fusion level 3: whether Backend::make() supports ConvSpec::normalises_diff_dst.
  virtual bool applies_norm_gradient() const { return false; }
  // For a Spec as below: whether the fusion is faster than none. Asked only if the user sets no level.
  virtual bool pays(const Spec&) const { return true; }
  // For a Spec that accumulates its gradient (fusion level 1), that produces or consumes shared values (level 2), or
  // that normalises its source (level 3): "" if Backend::make() supports it and it is not slower, otherwise the reason
  // why not. Collective like Backend::make().
  virtual std::string why_not_fused(const Spec&) { return ""; }
};

class Backend : public FusionRules {
 public:
  virtual Device& device() = 0;
  // Throws Error(config), with the reason, if this backend does not support the Spec. It may time kernels and agree on
  // the choice with the other ranks; then all ranks must call it with the same Specs in the same order.
  virtual std::unique_ptr<Op> make(const Spec&) = 0;
  virtual std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&) = 0;
  // Converts `count` elements between any two of f32, bf16 and f16, on the compute stream.
  virtual void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) = 0;
  // false: make() times no kernels from now on. For operations that are made only to query their memory requirements.
  virtual void set_kernel_timing(bool) {}
  // "" if the dtype is native, otherwise why it is slow ("fp16 is emulated in float32 ...").
  virtual std::string precision_note(DType) const = 0;
  // Whether convolutions of this type may be computed by Winograd's filtering, whose results have other last digits.
  virtual bool filters_convolutions(DType) const { return false; }
};

}  // namespace millrace
