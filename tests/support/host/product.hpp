// Matrix multiplications as cuda::MatmulSpec describes them, computed on the host.
#pragma once
#include <type_traits>
#include <vector>

#include "cuda/dnn/matmul.hpp"
#include "reference/elementwise.hpp"

namespace millrace::test {

inline float read_as(DType t, const void* from, std::int64_t i) {
  return t == DType::f32    ? static_cast<const float*>(from)[i]
         : t == DType::bf16 ? float(static_cast<const bf16*>(from)[i])
                            : float(static_cast<const f16*>(from)[i]);
}
inline void write_as(DType t, void* to, std::int64_t i, float value) {
  if (t == DType::f32)
    static_cast<float*>(to)[i] = value;
  else if (t == DType::bf16)
    static_cast<bf16*>(to)[i] = bf16(value);
  else
    static_cast<f16*>(to)[i] = f16(value);
}

class HostProduct {
 public:
  HostProduct(const cuda::MatmulSpec& spec, const cuda::MatmulArgs& args) : s_(spec), x_(args) {}

  void run() {
    const auto after = [](auto* p, std::int64_t elements, DType t) {
      using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(p)>>, const std::byte, std::byte>;
      return p ? static_cast<Bytes*>(p) + elements * std::int64_t(size_of(t)) : nullptr;
    };
    cuda::MatmulSpec one = s_;
    one.batch = 1;
    for (std::int64_t i = 0; i < s_.batch; ++i) {
      cuda::MatmulArgs args = x_;
      args.a = after(x_.a, i * s_.m * s_.k, s_.input);
      args.b = after(x_.b, i * s_.k * s_.n, s_.input);
      args.c = after(x_.c, i * s_.m * s_.n, s_.output);
      args.d = after(x_.d, i * s_.m * s_.n, s_.output);
      HostProduct(one, args).multiply();
    }
  }

 private:
  // The sums are computed in double, in order of k: column by column, so that the inner loop is over rows.
  void multiply() {
    using cuda::Epilogue;
    const Epilogue e = s_.epilogue;
    const std::size_t m = std::size_t(s_.m), k = std::size_t(s_.k);
    std::vector<float> a(m * k), b(k);  // a: row i of column l at l * m + i
    for (std::size_t l = 0; l < k; ++l)
      for (std::size_t i = 0; i < m; ++i)
        a[l * m + i] = read_as(s_.input, x_.a, std::int64_t(s_.transpose_a ? l + i * k : i + l * m));
    std::vector<double> column(m), sums(m, 0.0);
    for (std::int64_t j = 0; j < s_.n; ++j) {
      float sum_of_b = 0;
      for (std::size_t l = 0; l < k; ++l) {
        b[l] = read_as(s_.input, x_.b, s_.transpose_b ? j + std::int64_t(l) * s_.n : std::int64_t(l) + j * s_.k);
        sum_of_b += b[l];
      }
      if (e == Epilogue::bias_grad) write_as(s_.output, x_.bias, j, sum_of_b);
      column.assign(m, 0.0);
      for (std::size_t l = 0; l < k; ++l)
        for (std::size_t i = 0; i < m; ++i) column[i] += double(a[l * m + i]) * double(b[l]);
      for (std::int64_t i = 0; i < s_.m; ++i) {
        float value = x_.alpha * float(column[std::size_t(i)]);
        if (x_.beta != 0) value += x_.beta * read_as(s_.output, x_.c ? x_.c : x_.d, i + j * s_.m);
        value = after(value, i, j);
        sums[std::size_t(i)] += value;
        write_as(s_.output, x_.d, i + j * s_.m, value);
      }
    }
    if (e == Epilogue::relu_gradient_bias_grad || e == Epilogue::gelu_gradient_bias_grad)
      for (std::int64_t i = 0; i < s_.m; ++i) write_as(s_.output, x_.bias, i, float(sums[std::size_t(i)]));
  }

  // The epilogue of element (i, j).
  float after(float value, std::int64_t i, std::int64_t j) const {
    using cuda::Epilogue;
    const std::int64_t at = i + j * cuda::aux_stride(s_.epilogue, s_.m);
    unsigned char* const bits = static_cast<unsigned char*>(x_.aux);
    const auto pass = [&](bool positive) {
      const unsigned char bit = static_cast<unsigned char>(1u << at % 8);
      bits[at / 8] = static_cast<unsigned char>(positive ? bits[at / 8] | bit : bits[at / 8] & ~bit);
    };
    switch (s_.epilogue) {
      case Epilogue::bias:
      case Epilogue::bias_relu:
      case Epilogue::bias_relu_aux:
      case Epilogue::bias_gelu:
      case Epilogue::bias_gelu_aux:
        value += read_as(s_.output, x_.bias, i);
        break;
      default:
        break;
    }
    switch (s_.epilogue) {
      case Epilogue::relu_aux:
      case Epilogue::bias_relu_aux:
        pass(value > 0);
        [[fallthrough]];
      case Epilogue::relu:
      case Epilogue::bias_relu:
        return value > 0 ? value : 0;
      case Epilogue::gelu_aux:
      case Epilogue::bias_gelu_aux:
        write_as(s_.output, x_.aux, at, value);
        [[fallthrough]];
      case Epilogue::gelu:
      case Epilogue::bias_gelu:
        return float(reference::activation(Activation::gelu_tanh, value));
      case Epilogue::relu_gradient:
      case Epilogue::relu_gradient_bias_grad:
        return bits[at / 8] >> at % 8 & 1 ? value : 0;
      case Epilogue::gelu_gradient:
      case Epilogue::gelu_gradient_bias_grad:
        return value * float(reference::activation_slope(Activation::gelu_tanh, read_as(s_.output, x_.aux, at)));
      default:
        return value;
    }
  }

  const cuda::MatmulSpec s_;
  const cuda::MatmulArgs x_;
};

}  // namespace millrace::test
