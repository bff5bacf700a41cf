// cuBLAS's products as cuda::MatmulSpec describes them, in plain loops: for what the CUDA backend makes of them.
#pragma once
#include <gtest/gtest.h>

#include <cstring>

#include "../../src/cuda/matmul.hpp"
#include "millrace/base/error.hpp"

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

class MatmulOnHost : public cuda::Matmul {
 public:
  explicit MatmulOnHost(const cuda::MatmulSpec& spec) : s_(spec) {}
  std::size_t workspace_bytes() const override { return 1000; }
  std::string name() const override { return "loops"; }

  void run(cuda::Stream, float alpha, const void* a, const void* b, float beta, void* d, void* bias,
           void* workspace) override {
    using cuda::Epilogue;
    const bool with_bias = s_.epilogue != Epilogue::none && s_.epilogue != Epilogue::relu;
    EXPECT_EQ(bias != nullptr, with_bias);
    for (const void* p : {a, b, static_cast<const void*>(d), static_cast<const void*>(bias)})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 16, 0u);
    std::memset(workspace, 0xee, workspace_bytes());
    for (std::int64_t j = 0; j < s_.n; ++j) {
      float column = 0;
      for (std::int64_t l = 0; l < s_.k; ++l) column += at_b(b, l, j);
      if (s_.epilogue == Epilogue::bias_grad) write_as(s_.output, bias, j, column);
      for (std::int64_t i = 0; i < s_.m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < s_.k; ++l) sum += double(at_a(a, i, l)) * double(at_b(b, l, j));
        float value = alpha * float(sum);
        if (beta != 0) value += beta * read_as(s_.output, d, i + j * s_.m);
        if (s_.epilogue == Epilogue::bias || s_.epilogue == Epilogue::bias_relu) value += read_as(s_.output, bias, i);
        if (s_.epilogue == Epilogue::relu || s_.epilogue == Epilogue::bias_relu) value = value > 0 ? value : 0;
        write_as(s_.output, d, i + j * s_.m, value);
      }
    }
  }

 private:
  float at_a(const void* a, std::int64_t i, std::int64_t l) const {
    return read_as(s_.input, a, s_.transpose_a ? l + i * s_.k : i + l * s_.m);
  }
  float at_b(const void* b, std::int64_t l, std::int64_t j) const {
    return read_as(s_.input, b, s_.transpose_b ? j + l * s_.n : l + j * s_.k);
  }
  cuda::MatmulSpec s_;
};

// Has nothing but plain products for some shapes, as the real one.
class CublasOnHost : public cuda::Cublas {
 public:
  std::unique_ptr<cuda::Matmul> find(const cuda::MatmulSpec& s) override {
    if (s.epilogue != cuda::Epilogue::none && s.m % 3 == 0) return nullptr;
    return std::make_unique<MatmulOnHost>(s);
  }
};

}  // namespace millrace::test
