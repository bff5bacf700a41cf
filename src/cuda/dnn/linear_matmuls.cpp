#include "cuda/dnn/linear_matmuls.hpp"

#include <fmt/core.h>

#include "cuda/plans/fusion_cost.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

Epilogue backward_epilogue(Activation kind, bool bias) {
  if (kind == Activation::relu) return bias ? Epilogue::relu_gradient_bias_grad : Epilogue::relu_gradient;
  if (kind == Activation::gelu_tanh) return bias ? Epilogue::gelu_gradient_bias_grad : Epilogue::gelu_gradient;
  return Epilogue::none;
}

}  // namespace

Epilogue forward_epilogue(Activation kind, bool bias, bool aux) {
  if (kind == Activation::relu)
    return aux ? bias ? Epilogue::bias_relu_aux : Epilogue::relu_aux : bias ? Epilogue::bias_relu : Epilogue::relu;
  if (kind == Activation::gelu_tanh)
    return aux ? bias ? Epilogue::bias_gelu_aux : Epilogue::gelu_aux : bias ? Epilogue::bias_gelu : Epilogue::gelu;
  return bias ? Epilogue::bias : Epilogue::none;
}

bool has_fused_epilogue(Activation kind) { return kind == Activation::relu || kind == Activation::gelu_tanh; }
bool aux_is_aligned(Activation kind, std::int64_t features) {
  return kind != Activation::gelu_tanh || features % 8 == 0;
}

MatmulSpec forward_matmul(const LinearSpec& s, Epilogue epilogue) {
  return {s.out_features, s.src[0], s.src.row_count(), true, false, s.dtype, s.dtype, epilogue};
}
MatmulSpec backward_data_matmul(const LinearSpec& s) {
  return {s.src.row_count(),
          s.src[0],
          s.out_features,
          false,
          false,
          s.dtype,
          s.dtype,
          backward_epilogue(s.produces_diff_pre, s.produces_diff_bias),
          s.accumulates_diff_src};
}

Epilogue layer_epilogue(const LinearSpec& s) {
  const bool keeps = s.mode == Mode::train && (s.activation == Activation::gelu_tanh || s.consumes_diff_pre);
  return forward_epilogue(s.activation, s.bias, keeps);
}

std::unique_ptr<Matmul> find_if_faster(Cublas& cublas, const MatmulSpec& fused, Epilogue other, int passes,
                                       std::string& why) {
  auto found = cublas.find(fused);
  if (!found) {
    why = "cuBLAS has no kernel for " + str(fused);
    return nullptr;
  }
  MatmulSpec plain = fused;
  plain.epilogue = other;
  plain.add = false;
  const auto without = cublas.find(plain);
  why = why_fusion_is_slower(found->seconds(), without ? without->seconds() : 0,
                             double(passes) * double(fused.m * fused.n) * double(size_of(fused.output)),
                             cublas.copy_bytes_per_second());
  if (!why.empty()) return nullptr;
  return found;
}

std::string why_not_fused(const LinearSpec& s, Cublas& cublas) {
  const std::string other = "cuBLAS has the gradients of relu and gelu_tanh only";
  std::string why;
  if (s.consumes_diff_pre) {
    if (!has_fused_epilogue(s.activation)) return other;
    // Only the multiplication can write the bits of the relu, and that must cost less than a separate pass. The input
    // of gelu_tanh is stored in any case.
    if (s.activation == Activation::relu)
      find_if_faster(cublas, forward_matmul(s, layer_epilogue(s)), forward_epilogue(s.activation, s.bias, false), 1,
                     why);
  }
  // A separate pass reads the gradient and what is added, and writes the sum.
  if (why.empty() && s.accumulates_diff_src) {
    if (s.produces_diff_pre != Activation::none) return "it also computes the gradient of an activation";
    find_if_faster(cublas, backward_data_matmul(s), Epilogue::none, 3, why);
  }
  if (why.empty() && s.produces_diff_pre != Activation::none) {
    if (!has_fused_epilogue(s.produces_diff_pre)) return other;
    const std::int64_t features = s.src.row_count();
    if (!aux_is_aligned(s.produces_diff_pre, features))
      return fmt::format("{} features are not a multiple of 8", features);
    // The kernels that it replaces read two tensors and write one. The kernel of the bias gradient reads that one
    // again.
    find_if_faster(cublas, backward_data_matmul(s), Epilogue::none, s.produces_diff_bias ? 4 : 3, why);
  }
  return why;
}

}  // namespace millrace::cuda
