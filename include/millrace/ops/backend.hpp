// Backend: the factory of operations. `Spec` lists every operation there is: adding one adds its files and one line
// here and in the backends.
#pragma once
#include <memory>
#include <variant>

#include "millrace/device/device.hpp"
#include "millrace/ops/batch_norm.hpp"
#include "millrace/ops/conv.hpp"
#include "millrace/ops/elementwise.hpp"
#include "millrace/ops/embedding.hpp"
#include "millrace/ops/input.hpp"
#include "millrace/ops/linear.hpp"
#include "millrace/ops/loss.hpp"
#include "millrace/ops/optimizer.hpp"
#include "millrace/ops/pool.hpp"

namespace millrace {

using Spec = std::variant<ConvSpec, LinearSpec, BatchNormSpec, PoolSpec, ActivationSpec, AddSpec, DropoutSpec,
                          InputSpec, CrossEntropySpec, MseSpec, EmbeddingSpec>;
const char* name_of(const Spec&);  // "conv", "linear", ...
double flops_of(const Spec&);      // forward; 0 for what is bound by memory

// The least that an operation must do: what its rooflines are made of. Bytes count every tensor once for each pass that
// must see all of it before the next can begin (a norm reads its source twice).
struct Cost {
  double flops = 0, bytes = 0;
};
Cost forward_cost(const Spec&);
Cost backward_cost(const Spec&);

// Rewrites that a backend may support; the fusion level says up to which of them is used (0 = none). Level 1 folds
// nodes into one. At level 2 nodes do work of their neighbours and share values for it: the convolutions around a batch
// norm do its sums, in both directions; a linear layer does the way back through the activation before it.
enum class Fusion {
  batch_norm_relu = 1,
  batch_norm_add_relu = 1,
  linear_activation = 1,
  input_channels = 1,
  conv_sums = 2,
  conv_diff_sums = 2,
  linear_diff_pre = 2
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  // Error(config) with the reason when this backend cannot do it.
  virtual std::unique_ptr<Op> make(const Spec&) = 0;
  virtual std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&) = 0;
  // dst <- src, count elements between f32, bf16 and f16 (any pair), on the compute lane.
  virtual void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) = 0;
  virtual int max_fusion_level() const = 0;
  virtual int default_fusion_level() const { return max_fusion_level(); }  // when none is asked for
  // Level 1, of a convolution of images that has no diff_src: how many channels of zeros behind theirs make it faster.
  // Collective where make() is.
  virtual std::int64_t padded_channels(const ConvSpec&) { return 0; }
  // Level 2, of a Spec that makes or takes what level 2 shares: "" where make() takes it and it is worth it, else why
  // it is not. Collective where make() is.
  virtual std::string why_not_fused(const Spec&) { return ""; }
  // false: operations made from now on are asked for their Needs alone, and no kernels are timed for them.
  virtual void set_kernel_timing(bool) {}
  virtual std::string precision_note(
      DType) const = 0;  // "" when native, else why it is slow ("bf16 is emulated: no AMX or AVX512-BF16")
};

}  // namespace millrace
