// Memory descriptors of the tensors of a convolution.
#pragma once
#include "cpu/onednn/onednn.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu::onednn {

// A tensor that is (N, spatial..., C) in memory, described to oneDNN as (N, C, spatial...).
desc channels_last(const Shape&, DType);
dims weight_dims(const ConvSpec&);
// A weight that is (K, kernel..., C/groups) in memory.
desc canonical_weight(const ConvSpec&, DType);
// Activations are channels-last; the weights have any layout.
ConvShape conv_shape(const ConvSpec&, DType weight_dtype);

}  // namespace millrace::cpu::onednn
