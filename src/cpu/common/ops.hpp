// The CPU's operations, one maker per Spec; backend.cpp is the only caller. Each takes every dtype it can (f32, bf16,
// f16) and throws Error(config) with the reason otherwise. An op must run with the same number of OpenMP threads as it
// was made with.
#pragma once
#include <memory>

#include "millrace/ops/backend.hpp"

namespace millrace::cpu {

std::unique_ptr<Op> make_conv(const ConvSpec&);
bool wants_strided_pointwise(const ConvSpec&);
std::unique_ptr<Op> make_strided_pointwise(const ConvSpec&);
// What a spec with makes_sums or makes_diff_sums adds, around the op of the spec without.
std::unique_ptr<Op> make_conv_sums(const ConvSpec&, std::unique_ptr<Op> conv);
// What zero_channels change, around the op of the spec without, whose src is the narrow one.
std::unique_ptr<Op> make_conv_without_padding_channels(const ConvSpec&, std::unique_ptr<Op> conv);
std::unique_ptr<Op> make_input_with_padding_channels(const InputSpec&, std::unique_ptr<Op> input);
std::unique_ptr<Op> make_linear(const LinearSpec&);
bool wants_narrow_linear(const LinearSpec&);
std::unique_ptr<Op> make_narrow_linear(const LinearSpec&);  // float32
// Backend::why_not_fused of every linear layer, which make_linear refuses at level 2.
inline constexpr const char* linear_fusion_rejection = "oneDNN's products have no gradients of activations";
std::unique_ptr<Op> make_batch_norm(const BatchNormSpec&);
std::unique_ptr<Op> make_pool(const PoolSpec&);
std::unique_ptr<Op> make_activation(const ActivationSpec&);
std::unique_ptr<Op> make_add(const AddSpec&);
std::unique_ptr<Op> make_dropout(const DropoutSpec&);
std::unique_ptr<Op> make_input(const InputSpec&);
std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec&);
std::unique_ptr<Op> make_mse(const MseSpec&);
std::unique_ptr<Op> make_embedding(const EmbeddingSpec&);
std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&);

}  // namespace millrace::cpu
