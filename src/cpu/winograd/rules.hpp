// Where Winograd's filtering with 4x4 tiles is faster than the other methods, by fixed rules: there are
// enough tiles, and the image is not so small that tiles mostly cover what lies outside of it
// (docs/benchmarks/2026-11-winograd.md). In bf16: never with AMX; where AVX-512 multiplies pairs of bf16, only if it
// saves more; otherwise as in float32.
#pragma once
#include "cpu/winograd/tiles.hpp"

namespace millrace::cpu::winograd {

// Whether it can be faster on this processor for a convolution of this type.
bool is_candidate(DType);
bool is_faster(const ConvSpec&, ConvPart::Of);
bool is_faster_weight_gradient(const ConvSpec&);

}  // namespace millrace::cpu::winograd
