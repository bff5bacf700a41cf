// The kernels of the CUDA backend, compiled for the host. Operations that use cuDNN or cuBLAS on a GPU are those of the
// CPU backend here.
#pragma once
#include "cpu/backend.hpp"
#include "cuda/dnn/matmul.hpp"
#include "cuda/kernels/kernels.hpp"
#include "support/host/cublas.hpp"

namespace millrace::test {

class HostKernelsBackend : public Backend {
 public:
  // The context of an H200 has 132 multiprocessors of 228 KiB. With few, each thread handles several elements.
  explicit HostKernelsBackend(Device& device, int multiprocessors = 2, std::int64_t shared_bytes = 0)
      : device_(device), cpu_(make_cpu_backend(device)), context_{nullptr, multiprocessors} {
    counters_.resize(context_.counter_bytes() / sizeof(unsigned));
    context_.counters = counters_.data();
    context_.shared_bytes = shared_bytes;
  }
  Device& device() override { return device_; }
  std::unique_ptr<Op> make(const Spec& spec) override { return std::visit(Make{{context_, device_}, *this}, spec); }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return cuda::make_optimizer(spec, context_, device_, [&](std::int64_t rows, std::int64_t columns, int steps) {
      return make_newton_schulz(rows, columns, steps, context_, cublas_);
    });
  }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    cuda::convert(context_, dst, dst_type, src, src_type, count);
  }
  bool merges_norm(const BatchNormSpec& s) const override { return s.activation != Activation::relu6; }
  std::string why_not_fused(const Spec& spec) override {
    const auto* conv = std::get_if<ConvSpec>(&spec);
    if (conv && conv->normalises_src && conv->dtype != DType::f16) return "the kernels of the norm write fp16 only";
    return cpu_->why_not_fused(spec);
  }
  int max_fusion_level() const override { return 3; }
  int default_fusion_level() const override { return 1; }
  std::string precision_note(DType) const override { return ""; }

 private:
  struct Make : cuda::MakeKernelOp {
    HostKernelsBackend& b;
    using MakeKernelOp::operator();
    std::unique_ptr<Op> operator()(const ConvSpec& s) const { return b.cpu_->make(s); }
    std::unique_ptr<Op> operator()(const TransposedConvSpec& s) const {
      return cuda::make_transposed_conv(s, context, b.make(s.conv()));
    }
    std::unique_ptr<Op> operator()(const LinearSpec& s) const { return b.cpu_->make(s); }
    std::unique_ptr<Op> operator()(const BatchedMatmulSpec& s) const {
      return cuda::make_batched_matmul(s, context, b.cublas_);
    }
    std::unique_ptr<Op> operator()(const RecurrentSpec& s) const { return cuda::make_recurrent(s, context, b.cublas_); }
    std::unique_ptr<Op> operator()(const LinearCrossEntropySpec& s) const {
      return make_linear_cross_entropy(s, (*this)(s.chunk_linear()), (*this)(s.chunk_loss()));
    }
  };
  Device& device_;
  std::unique_ptr<Backend> cpu_;
  HostCublas cublas_;
  cuda::LaunchContext context_;
  std::vector<unsigned> counters_;  // zero
};

// One object for the whole test program, for the definitions of device() and backend() in op_harness.hpp.
inline Device& static_cpu_device() {
  static const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}
template <class HostBackend>
Backend& static_backend() {
  static HostBackend backend(static_cpu_device());
  return backend;
}

}  // namespace millrace::test
