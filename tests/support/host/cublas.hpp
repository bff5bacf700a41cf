// A fake cuBLAS on the host: matrix multiplications as cuda::MatmulSpec describes them, in plain loops.
#pragma once
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/dnn/matmul.hpp"
#include "millrace/base/error.hpp"
#include "support/host/product.hpp"

namespace millrace::test {

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
    EXPECT_EQ(x.bias != nullptr, cuda::has_bias(s_.epilogue));
    EXPECT_EQ(x.aux != nullptr, cuda::aux_of(s_.epilogue) != cuda::Aux::none);
    for (const void* p :
         {x.a, x.b, static_cast<const void*>(x.d), static_cast<const void*>(x.bias), static_cast<const void*>(x.aux)})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 16, 0u);
    std::memset(x.workspace, 0xee, workspace_bytes());
    HostProduct(s_, x).run();
  }

 private:
  cuda::MatmulSpec s_;
};

// Like the real library, it has no epilogues for some shapes, and no combined gradients of activation and bias for
// others. It checks that an aux matrix of values has a multiple of 8 rows, as cuBLAS demands.
class HostCublas : public cuda::Cublas {
 public:
  double copy_bytes_per_second() const override { return 2e12; }
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
