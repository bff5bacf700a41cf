// How a convolution of the CPU computes its three parts: forward, the gradient of its source (data), and the gradients
// of its weights.
#pragma once
#include <string>

namespace millrace::cpu {

// rule: by fixed rules. direct: oneDNN's convolution. blocked: the same in layouts of oneDNN, between reorders. gemm:
// im2col and matrix products. The others: see tile_conv.hpp, kn2row_conv.hpp, turned_conv.hpp,
// depthwise_conv.hpp and cpu/winograd/filtering.hpp.
// A method may split its work in two ways: each thread computes blocks of its own (alone), or all threads compute each
// block together. A method that does not support a convolution is replaced by `direct`.
enum class ConvMethod {
  rule,
  direct,
  blocked,
  tiles,
  kn2row,
  turned,
  depthwise,
  gemm_alone,
  gemm_together,
  winograd_2,
  winograd_4,  // alone or together, by the size of a block
  winograd_4_alone,
  winograd_4_slices
};

constexpr bool is_winograd(ConvMethod method) {
  return method >= ConvMethod::winograd_2 && method <= ConvMethod::winograd_4_slices;
}

enum class ConvPass { forward, data, weights };

struct ConvMethods {
  ConvMethod forward = ConvMethod::rule, data = ConvMethod::rule, weights = ConvMethod::rule;
  bool winograd = true;  // whether the rules may choose Winograd's filtering
  std::string note;      // about the choice, for Op::implementation()

  ConvMethod& of(ConvPass pass) {
    return pass == ConvPass::forward ? forward : pass == ConvPass::data ? data : weights;
  }
  ConvMethod of(ConvPass pass) const {
    return pass == ConvPass::forward ? forward : pass == ConvPass::data ? data : weights;
  }
};

}  // namespace millrace::cpu
