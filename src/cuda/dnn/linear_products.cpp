#include "cuda/dnn/linear_products.hpp"

#include "cuda/dnn/linear.hpp"
#include "cuda/dnn/pass_time.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

Epilogue back(Activation kind, bool bias) {
  if (kind == Activation::relu) return bias ? Epilogue::relu_gradient_bias_grad : Epilogue::relu_gradient;
  if (kind == Activation::gelu_tanh) return bias ? Epilogue::gelu_gradient_bias_grad : Epilogue::gelu_gradient;
  return Epilogue::none;
}

}  // namespace

Epilogue ahead(Activation kind, bool bias, bool aux) {
  if (kind == Activation::relu)
    return aux ? bias ? Epilogue::bias_relu_aux : Epilogue::relu_aux : bias ? Epilogue::bias_relu : Epilogue::relu;
  if (kind == Activation::gelu_tanh)
    return aux ? bias ? Epilogue::bias_gelu_aux : Epilogue::gelu_aux : bias ? Epilogue::bias_gelu : Epilogue::gelu;
  return bias ? Epilogue::bias : Epilogue::none;
}

bool in_products(Activation kind) { return kind == Activation::relu || kind == Activation::gelu_tanh; }
bool fits_aux(Activation kind, std::int64_t features) { return kind != Activation::gelu_tanh || features % 8 == 0; }

MatmulSpec forward_product(const LinearSpec& s, Epilogue epilogue) {
  return {s.out_features, s.src[0], s.src.row_count(), true, false, s.dtype, s.dtype, epilogue};
}
MatmulSpec backward_data_product(const LinearSpec& s) {
  return {s.src.row_count(),
          s.src[0],
          s.out_features,
          false,
          false,
          s.dtype,
          s.dtype,
          back(s.makes_diff_pre, s.makes_diff_bias)};
}

Epilogue whole(const LinearSpec& s) {
  const bool keeps = s.mode == Mode::train && (s.activation == Activation::gelu_tanh || s.takes_diff_pre);
  return ahead(s.activation, s.bias, keeps);
}

std::unique_ptr<Matmul> find_faster(Cublas& cublas, const MatmulSpec& fused, Epilogue other, int passes,
                                    std::string& why) {
  auto found = cublas.find(fused);
  if (!found) {
    why = "cuBLAS has no kernel for " + str(fused);
    return nullptr;
  }
  MatmulSpec plain = fused;
  plain.epilogue = other;
  const auto without = cublas.find(plain);
  why = why_slower(found->seconds(), without ? without->seconds() : 0,
                   double(passes) * double(fused.m * fused.n) * double(size_of(fused.output)));
  if (!why.empty()) return nullptr;
  return found;
}

std::string why_not_fused(const LinearSpec& s, Cublas& cublas) {
  const std::string other = "cuBLAS has the gradients of relu and gelu_tanh alone";
  std::string why;
  if (s.takes_diff_pre) {
    if (!in_products(s.activation)) return other;
    // Relu's bits come from the product alone, and are to cost it less than a pass; what gelu_tanh is taken of is kept
    // in any case.
    if (s.activation == Activation::relu)
      find_faster(cublas, forward_product(s, whole(s)), ahead(s.activation, s.bias, false), 1, why);
  }
  if (why.empty() && s.makes_diff_pre != Activation::none) {
    if (!in_products(s.makes_diff_pre)) return other;
    const std::int64_t features = s.src.row_count();
    if (!fits_aux(s.makes_diff_pre, features)) return cat(features, " features, no multiple of 8");
    // The kernels that it replaces read two tensors and write one, which the bias gradient's reads again.
    find_faster(cublas, backward_data_product(s), Epilogue::none, s.makes_diff_bias ? 4 : 3, why);
  }
  return why;
}

}  // namespace millrace::cuda
