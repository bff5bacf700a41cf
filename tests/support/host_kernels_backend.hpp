// The kernels of the CUDA backend, compiled for the host. Operations that use cuDNN or cuBLAS on a GPU are those of the
// CPU backend here.
#pragma once
#include "cpu/backend.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::test {

class HostKernelsBackend : public Backend {
 public:
  explicit HostKernelsBackend(Device& device) : device_(device), cpu_(make_cpu_backend(device)) {}
  Device& device() override { return device_; }
  std::unique_ptr<Op> make(const Spec& spec) override { return std::visit(Make{*this}, spec); }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return cuda::make_optimizer(spec, context_, device_);
  }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    cuda::convert(context_, dst, dst_type, src, src_type, count);
  }
  std::string why_not_fused(const Spec& spec) override { return cpu_->why_not_fused(spec); }
  int max_fusion_level() const override { return 2; }
  int default_fusion_level() const override { return 1; }
  std::string precision_note(DType) const override { return ""; }

 private:
  struct Make {
    HostKernelsBackend& b;
    std::unique_ptr<Op> operator()(const ConvSpec& s) const { return b.cpu_->make(s); }
    std::unique_ptr<Op> operator()(const LinearSpec& s) const { return b.cpu_->make(s); }
    std::unique_ptr<Op> operator()(const BatchNormSpec& s) const { return cuda::make_batch_norm(s, b.context_); }
    std::unique_ptr<Op> operator()(const PoolSpec& s) const { return cuda::make_pool(s, b.context_); }
    std::unique_ptr<Op> operator()(const ActivationSpec& s) const { return cuda::make_activation(s, b.context_); }
    std::unique_ptr<Op> operator()(const AddSpec& s) const { return cuda::make_add(s, b.context_); }
    std::unique_ptr<Op> operator()(const DropoutSpec& s) const { return cuda::make_dropout(s, b.context_); }
    std::unique_ptr<Op> operator()(const InputSpec& s) const { return cuda::make_input(s, b.context_, b.device_); }
    std::unique_ptr<Op> operator()(const CrossEntropySpec& s) const { return cuda::make_cross_entropy(s, b.context_); }
    std::unique_ptr<Op> operator()(const MseSpec& s) const { return cuda::make_mse(s, b.context_); }
    std::unique_ptr<Op> operator()(const EmbeddingSpec& s) const { return cuda::make_embedding(s, b.context_); }
  };
  Device& device_;
  std::unique_ptr<Backend> cpu_;
  cuda::LaunchContext context_{nullptr, 2};  // few blocks, so that each thread handles several elements
};

}  // namespace millrace::test
