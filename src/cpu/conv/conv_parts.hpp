// Chooses how the parts of a convolution are computed.
#pragma once
#include <memory>

#include "cpu/common/conv_methods.hpp"
#include "cpu/common/conv_part.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

// What the fixed rules choose: never ConvMethod::rule. winograd: whether they may choose Winograd's filtering.
ConvMethod method_by_rule(const ConvSpec&, ConvPass, bool winograd);

// The part for a method of `methods`; null: oneDNN's convolution. Adds the memory for copies of weights to
// needs.packed_weights.
std::unique_ptr<ConvPart> make_conv_part(const ConvSpec&, ConvPart::Of, const ConvMethods&, MemoryRequirements& needs);
std::unique_ptr<ConvPart> make_weight_gradient_part(const ConvSpec&, const ConvMethods&);

}  // namespace millrace::cpu
