// The CUDA backend on the host: its kernels, and its operations made of matrix multiplications, which run in plain
// loops (cublas.hpp). Convolutions are those of the CPU backend.
#include "cuda/dnn/linear_matmuls.hpp"
#include "support/host/cublas.hpp"
#include "support/host/kernels_backend.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class HostMatmulBackend : public HostKernelsBackend {
 public:
  using HostKernelsBackend::HostKernelsBackend;
  std::unique_ptr<Op> make(const Spec& spec) override {
    if (const auto* linear = std::get_if<LinearSpec>(&spec))
      return cuda::make_linear(*linear, cuda::LaunchContext{nullptr, 2}, cublas_);
    return HostKernelsBackend::make(spec);
  }
  std::string why_not_fused(const Spec& spec) override {
    const auto* linear = std::get_if<LinearSpec>(&spec);
    return linear ? cuda::why_not_fused(*linear, cublas_) : HostKernelsBackend::why_not_fused(spec);
  }

 private:
  HostCublas cublas_;
};

}  // namespace

Device& device() { return static_cpu_device(); }
Backend& backend() { return static_backend<HostMatmulBackend>(); }

}  // namespace millrace::test
