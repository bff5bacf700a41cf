// How a convolution of the CPU computes its three parts: forward, the gradient of its source (data), and the gradients
// of its weights.
#pragma once
#include <array>

namespace millrace::cpu {

// rule: by fixed rules. direct: oneDNN's convolution. The others: see tile_conv.hpp, kn2row_conv.hpp and
// cpu/winograd/filtering.hpp. A method that does not support a convolution is replaced by `direct`.
enum class ConvMethod { rule, direct, tiles, kn2row, winograd_2, winograd_4 };

struct ConvMethods {
  ConvMethod forward = ConvMethod::rule, data = ConvMethod::rule, weights = ConvMethod::rule;
  bool winograd = true;  // whether the rules may choose Winograd's filtering
};

}  // namespace millrace::cpu
