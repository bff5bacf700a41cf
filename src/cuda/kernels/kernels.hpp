// The operations that millrace implements with its own kernels: one factory for each Spec, in the .cu file of its
// name. The CUDA backend calls them. So does a backend of the tests, which runs the same files compiled for the host.
// All operations support f32, bf16 and f16.
#pragma once
#include <memory>

#include "cuda/block/block.hpp"
#include "cuda/kernels/orthogonalizer.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec&, const LaunchContext&);
std::unique_ptr<Op> make_dual_norm(const BatchNormSpec&, const LaunchContext&);  // with residual_norm
std::unique_ptr<Op> make_norm_pool(const BatchNormSpec&, const LaunchContext&);  // with pool
std::unique_ptr<Op> make_pool(const PoolSpec&, const LaunchContext&);
std::unique_ptr<Op> make_activation(const ActivationSpec&, const LaunchContext&);
std::unique_ptr<Op> make_add(const AddSpec&, const LaunchContext&);
std::unique_ptr<Op> make_dropout(const DropoutSpec&, const LaunchContext&);
std::unique_ptr<Op> make_input(const InputSpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_pointwise_loss(const PointwiseLossSpec&, const LaunchContext&);
std::unique_ptr<Op> make_embedding(const EmbeddingSpec&, const LaunchContext&);
std::unique_ptr<Op> make_layer_norm(const LayerNormSpec&, const LaunchContext&);
std::unique_ptr<Op> make_group_norm(const GroupNormSpec&, const LaunchContext&);
std::unique_ptr<Op> make_scale_by(const ScaleBySpec&, const LaunchContext&);
// is_depthwise() and no sums of a norm.
std::unique_ptr<Op> make_depthwise_conv(const ConvSpec&, const LaunchContext&);
// conv: the op of TransposedConvSpec::conv().
std::unique_ptr<Op> make_transposed_conv(const TransposedConvSpec&, const LaunchContext&, std::unique_ptr<Op> conv);
std::unique_ptr<Op> make_position_embedding(const PositionEmbeddingSpec&, const LaunchContext&);
std::unique_ptr<Op> make_gated(const GatedSpec&, const LaunchContext&);
std::unique_ptr<Op> make_scale(const ScaleSpec&, const LaunchContext&);
std::unique_ptr<Op> make_rotary(const RotarySpec&, const LaunchContext&);
std::unique_ptr<Op> make_concat(const ConcatSpec&, const LaunchContext&);
std::unique_ptr<Op> make_slice(const SliceSpec&, const LaunchContext&);
std::unique_ptr<Op> make_upsample(const UpsampleSpec&, const LaunchContext&);
std::unique_ptr<Op> make_gather(const GatherSpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_affine(const AffineSpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_power(const PowerSpec&, const LaunchContext&);
std::unique_ptr<Op> make_prelu(const PreluSpec&, const LaunchContext&);
std::unique_ptr<Op> make_indexed_bias(const IndexedBiasSpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_softmax(const SoftmaxSpec&, const LaunchContext&);
std::unique_ptr<Op> make_move_labels(const MoveLabelsSpec&, const LaunchContext&);
std::unique_ptr<Op> make_mix(const MixSpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_documents(const DocumentsSpec&, const LaunchContext&);
std::unique_ptr<Op> make_attention(const AttentionSpec&, const LaunchContext&);
std::unique_ptr<Op> make_cached_attention(const AttentionSpec&, const LaunchContext&);  // with a window
// A seed of cuDNN's random numbers, and where they begin.
struct AttentionSeed {
  alignas(16) std::int64_t seed;
  alignas(16) std::int64_t offset;
};
// For an attention with dropout: writes a seed for each part of `rows` rows, from the id of its first row and the step.
void write_attention_seeds(const LaunchContext&, const AttentionSpec&, const OpArgs&, std::int64_t rows,
                           AttentionSeed* seeds);
// The function makes the matrix products of muon.
std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&, const LaunchContext&, Device&,
                                            const MakeOrthogonalizer&);
// A visitor of Spec that makes these operations. Backends derive their visitor from it and add the other Specs.
struct MakeKernelOp {
  LaunchContext context;
  Device& device;
  std::unique_ptr<Op> operator()(const BatchNormSpec& s) const {
    if (s.residual_norm) return make_dual_norm(s, context);
    return s.pool ? make_norm_pool(s, context) : make_batch_norm(s, context);
  }
  std::unique_ptr<Op> operator()(const PoolSpec& s) const { return make_pool(s, context); }
  std::unique_ptr<Op> operator()(const ActivationSpec& s) const { return make_activation(s, context); }
  std::unique_ptr<Op> operator()(const AddSpec& s) const { return make_add(s, context); }
  std::unique_ptr<Op> operator()(const DropoutSpec& s) const { return make_dropout(s, context); }
  std::unique_ptr<Op> operator()(const InputSpec& s) const { return make_input(s, context, device); }
  std::unique_ptr<Op> operator()(const CrossEntropySpec& s) const { return make_cross_entropy(s, context, device); }
  std::unique_ptr<Op> operator()(const PointwiseLossSpec& s) const { return make_pointwise_loss(s, context); }
  std::unique_ptr<Op> operator()(const EmbeddingSpec& s) const { return make_embedding(s, context); }
  std::unique_ptr<Op> operator()(const LayerNormSpec& s) const { return make_layer_norm(s, context); }
  std::unique_ptr<Op> operator()(const GroupNormSpec& s) const { return make_group_norm(s, context); }
  std::unique_ptr<Op> operator()(const ScaleBySpec& s) const { return make_scale_by(s, context); }
  std::unique_ptr<Op> operator()(const ReshapeSpec& s) const {
    return make_activation({s.src, Activation::none, s.dtype, s.mode}, context);
  }
  std::unique_ptr<Op> operator()(const PositionEmbeddingSpec& s) const { return make_position_embedding(s, context); }
  std::unique_ptr<Op> operator()(const GatedSpec& s) const { return make_gated(s, context); }
  std::unique_ptr<Op> operator()(const ScaleSpec& s) const { return make_scale(s, context); }
  std::unique_ptr<Op> operator()(const RotarySpec& s) const { return make_rotary(s, context); }
  std::unique_ptr<Op> operator()(const ConcatSpec& s) const { return make_concat(s, context); }
  std::unique_ptr<Op> operator()(const SliceSpec& s) const { return make_slice(s, context); }
  std::unique_ptr<Op> operator()(const UpsampleSpec& s) const { return make_upsample(s, context); }
  std::unique_ptr<Op> operator()(const GatherSpec& s) const { return make_gather(s, context, device); }
  std::unique_ptr<Op> operator()(const AffineSpec& s) const { return make_affine(s, context, device); }
  std::unique_ptr<Op> operator()(const PowerSpec& s) const { return make_power(s, context); }
  std::unique_ptr<Op> operator()(const PreluSpec& s) const { return make_prelu(s, context); }
  std::unique_ptr<Op> operator()(const IndexedBiasSpec& s) const { return make_indexed_bias(s, context, device); }
  std::unique_ptr<Op> operator()(const SoftmaxSpec& s) const { return make_softmax(s, context); }
  std::unique_ptr<Op> operator()(const MoveLabelsSpec& s) const { return make_move_labels(s, context); }
  std::unique_ptr<Op> operator()(const MixSpec& s) const { return make_mix(s, context, device); }
  std::unique_ptr<Op> operator()(const DocumentsSpec& s) const { return make_documents(s, context); }
  std::unique_ptr<Op> operator()(const AttentionSpec& s) const { return make_attention(s, context); }
};

// One time step of a recurrent layer, for `rows` rows, of which those from `own` on have zeros for dst and diff_dst.
// Matrices are dense; null: zeros, or not wanted. RecurrentLayout describes the arrays.
struct RecurrentForward {
  std::int64_t rows = 0, own = 0;
  float* gates = nullptr;          // in: W_ih x
  const float* product = nullptr;  // W_hh h
  const float *bias_ih = nullptr, *bias_hh = nullptr;
  const float* before = nullptr;  // the state of the step before
  float *state = nullptr, *query = nullptr;
  void* hidden = nullptr;
  void* dst = nullptr;  // of the first row at this time; the next row is dst_stride elements on
  std::int64_t dst_stride = 0;
  void* cell = nullptr;  // as dst: for the state
};
struct RecurrentBackward {
  std::int64_t rows = 0, own = 0;
  const float *gates = nullptr, *before = nullptr, *state = nullptr, *query = nullptr;
  const float* diff_hidden = nullptr;
  float* carry = nullptr;          // in and out
  bool carries = false;            // carry has been written by the next step
  const void* diff_dst = nullptr;  // as dst
  const void* diff_cell = nullptr;
  std::int64_t dst_stride = 0;
  void *diff_ih = nullptr, *diff_hh = nullptr;
};
void recurrent_forward(const LaunchContext&, const RecurrentSpec&, const RecurrentForward&);
void recurrent_backward(const LaunchContext&, const RecurrentSpec&, const RecurrentBackward&);
// steps: (S, rows, in) in the order of the computation; src: (N, S, in). Copies src to steps, with zeros in rows that
// src does not have, or back.
void to_steps(const LaunchContext&, const RecurrentSpec&, std::int64_t rows, void* steps, const void* src);
void from_steps(const LaunchContext&, const RecurrentSpec&, std::int64_t rows, void* src, const void* steps);

// dst = src, converted between any two of f32, bf16 and f16.
void convert(const LaunchContext&, void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count);
// dst = src (GradMode::write) or dst += src (GradMode::add). Moves 16-bit weight gradients into the float32 gradient.
void accumulate(const LaunchContext&, float* dst, const void* src, DType src_type, std::int64_t count, GradMode);
// sum[c] = or += the sum of values[r, c] over all rows r: the gradient of a bias. workspace: column_sums_bytes().
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, const LaunchContext&);
struct RowMajorMatrix {
  const void* values;
  DType dtype;
  std::int64_t rows, columns;
};
void column_sums(const LaunchContext&, float* sum, const RowMajorMatrix&, GradMode, void* workspace);

}  // namespace millrace::cuda
