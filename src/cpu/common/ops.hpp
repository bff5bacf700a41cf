// Factories of the operations of the CPU, one for each Spec. backend.cpp is the main caller. They support f32, bf16 and
// f16 unless stated otherwise, and throw Error(config), with the reason, for an unsupported Spec. An op must run with
// the number of threads that was set when it was made.
#pragma once
#include <functional>
#include <memory>

#include "cpu/common/conv_methods.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace::cpu {

std::unique_ptr<Op> make_conv(const ConvSpec&, const ConvMethods& = {});
// Whether make_strided_pointwise() must be used instead of make_conv(); see strided_pointwise.cpp.
bool wants_strided_pointwise(const ConvSpec&);
std::unique_ptr<Op> make_strided_pointwise(const ConvSpec&);
// A Spec that shares values with the norms around it (fusion levels 2 and 3). make: makes the ops of a Spec that does
// not.
std::unique_ptr<Op> make_chunked_conv(const ConvSpec&, const std::function<std::unique_ptr<Op>(const ConvSpec&)>& make);
// Whether make_chunked_conv() is faster than separate passes over memory.
bool chunking_pays(const ConvSpec&);
// Add padded_channels to `conv` or `input`, the op of the same Spec without them.
std::unique_ptr<Op> make_conv_without_padding_channels(const ConvSpec&, std::unique_ptr<Op> conv);
std::unique_ptr<Op> make_input_with_padding_channels(const InputSpec&, std::unique_ptr<Op> input);
// conv: the op of TransposedConvSpec::conv().
std::unique_ptr<Op> make_transposed_conv(const TransposedConvSpec&, std::unique_ptr<Op> conv);
std::unique_ptr<Op> make_linear(const LinearSpec&);
// Whether make_narrow_linear() is faster than oneDNN: few outputs and no activation.
bool wants_narrow_linear(const LinearSpec&);
std::unique_ptr<Op> make_narrow_linear(const LinearSpec&);  // float32 only
std::unique_ptr<Op> make_row_linear(const LinearSpec&);     // for one row, in Mode::infer
// The result of Backend::why_not_fused() for linear layers. make_linear() supports no fusion at level 2.
inline constexpr const char* linear_fusion_rejection = "oneDNN's matmul cannot fuse the gradient of an activation";
std::unique_ptr<Op> make_batch_norm(const BatchNormSpec&);
std::unique_ptr<Op> make_pool(const PoolSpec&);
std::unique_ptr<Op> make_activation(const ActivationSpec&);
std::unique_ptr<Op> make_add(const AddSpec&);
std::unique_ptr<Op> make_dropout(const DropoutSpec&);
std::unique_ptr<Op> make_input(const InputSpec&);
std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec&);
std::unique_ptr<Op> make_pointwise_loss(const PointwiseLossSpec&);
std::unique_ptr<Op> make_embedding(const EmbeddingSpec&);
std::unique_ptr<Op> make_layer_norm(const LayerNormSpec&);
std::unique_ptr<Op> make_group_norm(const GroupNormSpec&);
std::unique_ptr<Op> make_scale_by(const ScaleBySpec&);
std::unique_ptr<Op> make_position_embedding(const PositionEmbeddingSpec&);
std::unique_ptr<Op> make_attention(const AttentionSpec&);
std::unique_ptr<Op> make_cached_attention(const AttentionSpec&);  // with a window
std::unique_ptr<Op> make_gated(const GatedSpec&);
std::unique_ptr<Op> make_scale(const ScaleSpec&);
std::unique_ptr<Op> make_rotary(const RotarySpec&);
std::unique_ptr<Op> make_concat(const ConcatSpec&);
std::unique_ptr<Op> make_slice(const SliceSpec&);
std::unique_ptr<Op> make_upsample(const UpsampleSpec&);
std::unique_ptr<Op> make_gather(const GatherSpec&);
std::unique_ptr<Op> make_affine(const AffineSpec&);
std::unique_ptr<Op> make_power(const PowerSpec&);
std::unique_ptr<Op> make_prelu(const PreluSpec&);
std::unique_ptr<Op> make_indexed_bias(const IndexedBiasSpec&);
std::unique_ptr<Op> make_softmax(const SoftmaxSpec&);
std::unique_ptr<Op> make_batched_matmul(const BatchedMatmulSpec&);
std::unique_ptr<Op> make_recurrent(const RecurrentSpec&);
std::unique_ptr<Op> make_move_labels(const MoveLabelsSpec&);
std::unique_ptr<Op> make_mix(const MixSpec&);
std::unique_ptr<Op> make_documents(const DocumentsSpec&);
std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&);

}  // namespace millrace::cpu
