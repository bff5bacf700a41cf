// A fake cuBLAS on the host: matrix multiplications as cuda::MatmulSpec describes them, in plain loops.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cuda/dnn/matmul.hpp"
#include "millrace/base/error.hpp"
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

class HostMatmul : public cuda::Matmul {
 public:
  explicit HostMatmul(const cuda::MatmulSpec& spec) : s_(spec) {}
  std::size_t workspace_bytes() const override { return 1000; }
  std::string name() const override { return "loops"; }
  // Fake times. Multiplications with 88 rows and an epilogue other than none and bias are very slow.
  double seconds() const override {
    const bool alone = s_.epilogue == cuda::Epilogue::none || s_.epilogue == cuda::Epilogue::bias;
    return s_.m == 88 && !alone ? 1 : 1e-5;
  }

  void run(cuda::StreamHandle, const cuda::MatmulArgs& x) override {
    using cuda::Epilogue;
    const Epilogue e = s_.epilogue;
    EXPECT_EQ(x.bias != nullptr, cuda::has_bias(e));
    EXPECT_EQ(x.aux != nullptr, cuda::aux_of(e) != cuda::Aux::none);
    for (const void* p :
         {x.a, x.b, static_cast<const void*>(x.d), static_cast<const void*>(x.bias), static_cast<const void*>(x.aux)})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 16, 0u);
    std::memset(x.workspace, 0xee, workspace_bytes());
    std::vector<double> sums(static_cast<std::size_t>(s_.m), 0.0);  // of D's columns
    for (std::int64_t j = 0; j < s_.n; ++j) {
      float column = 0;
      for (std::int64_t l = 0; l < s_.k; ++l) column += at_b(x.b, l, j);
      if (e == Epilogue::bias_grad) write_as(s_.output, x.bias, j, column);
      for (std::int64_t i = 0; i < s_.m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < s_.k; ++l) sum += double(at_a(x.a, i, l)) * double(at_b(x.b, l, j));
        float value = float(sum);
        if (x.beta != 0) value += x.beta * read_as(s_.output, x.d, i + j * s_.m);
        value = after(x, value, i, j);
        sums[std::size_t(i)] += value;
        write_as(s_.output, x.d, i + j * s_.m, value);
      }
    }
    if (e == Epilogue::relu_gradient_bias_grad || e == Epilogue::gelu_gradient_bias_grad)
      for (std::int64_t i = 0; i < s_.m; ++i) write_as(s_.output, x.bias, i, float(sums[std::size_t(i)]));
  }

 private:
  // The epilogue of element (i, j).
  float after(const cuda::MatmulArgs& x, float value, std::int64_t i, std::int64_t j) const {
    using cuda::Epilogue;
    const std::int64_t at = i + j * cuda::aux_stride(s_.epilogue, s_.m);
    unsigned char* const bits = static_cast<unsigned char*>(x.aux);
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
        value += read_as(s_.output, x.bias, i);
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
        write_as(s_.output, x.aux, at, value);
        [[fallthrough]];
      case Epilogue::gelu:
      case Epilogue::bias_gelu:
        return float(reference::activation(Activation::gelu_tanh, value));
      case Epilogue::relu_gradient:
      case Epilogue::relu_gradient_bias_grad:
        return bits[at / 8] >> at % 8 & 1 ? value : 0;
      case Epilogue::gelu_gradient:
      case Epilogue::gelu_gradient_bias_grad:
        return value * float(reference::activation_slope(Activation::gelu_tanh, read_as(s_.output, x.aux, at)));
      default:
        return value;
    }
  }

  float at_a(const void* a, std::int64_t i, std::int64_t l) const {
    return read_as(s_.input, a, s_.transpose_a ? l + i * s_.k : i + l * s_.m);
  }
  float at_b(const void* b, std::int64_t l, std::int64_t j) const {
    return read_as(s_.input, b, s_.transpose_b ? j + l * s_.n : l + j * s_.k);
  }
  cuda::MatmulSpec s_;
};

// Like the real library, it has no epilogues for some shapes, and no combined gradients of activation and bias for
// others. It checks that an aux matrix of values has a multiple of 8 rows, as cuBLAS demands.
class HostCublas : public cuda::Cublas {
 public:
  std::unique_ptr<cuda::Matmul> find(const cuda::MatmulSpec& s) override {
    using cuda::Epilogue;
    if (s.epilogue != Epilogue::none && s.m % 3 == 0) return nullptr;
    const bool both =
        s.epilogue == Epilogue::relu_gradient_bias_grad || s.epilogue == Epilogue::gelu_gradient_bias_grad;
    if (both && s.m % 5 == 0) return nullptr;
    EXPECT_TRUE(cuda::aux_of(s.epilogue) != cuda::Aux::values || s.m % 8 == 0) << cuda::str(s);
    return std::make_unique<HostMatmul>(s);
  }
};

}  // namespace millrace::test
