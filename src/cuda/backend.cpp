#include "cuda/backend.hpp"

#include <cstdlib>

#include "cuda/dnn/attention.hpp"
#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/cublas.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "cuda/dnn/linear_matmuls.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/plans/device_timing.hpp"
#include "cuda/plans/plan_identity.hpp"

namespace millrace::cuda {
namespace {

PlanSelectorOptions selector_options(World& world, const ExecutionOptions& options) {
  PlanSelectorOptions out;
  out.autotune = options.cuda.autotune;
  out.rank = world.rank();
  if (world.size() > 1) out.broadcast = [&world](const std::string& text) { return world.broadcast_string(text); };
  return out;
}

cudnn::Options cudnn_options(World& world, const CudaDevice& device, const ExecutionOptions& options,
                             double copy_bytes_per_second) {
  cudnn::Options out;
  out.rules.workspace_limit = options.cuda.workspace;
  out.rules.deterministic = options.deterministic;
  out.rules.tf32 = options.cuda.tf32;
  out.choices = selector_options(world, options);
  out.copy_bytes_per_second = copy_bytes_per_second;
  out.compute_capability = device.compute_capability();
  return out;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(World& world, CudaDevice& device, const ExecutionOptions& options)
      : device_(device),
        context_{device.stream(Stream::compute), device.multiprocessors()},
        counters_(device, MemoryKind::device, context_.counter_bytes()),
        matmuls_(make_selector(PlanIdentity::of_current_device("cublaslt", cublas_version(), cublas_candidates),
                               selector_options(world, options))),
        copy_bytes_per_second_(copy_bytes_per_second(context_.stream, matmuls_)),
        cudnn_(context_, cudnn_options(world, device, options, copy_bytes_per_second_)),
        cublas_(make_cublas(context_, matmuls_,
                            {.tf32 = options.cuda.tf32, .copy_bytes_per_second = copy_bytes_per_second_})) {
    context_.counters = counters_.as<unsigned>();
    context_.dependent = options.cuda.dependent_launch;
    if (context_.dependent && device.compute_capability() < 90)
      fail(Exit::config,
           "cuda.dependent_launch: needs a GPU of compute capability 9.0. switch it off for this one ({})",
           device.describe());
    if (!options.cuda.persistent_norm) return;
    if (world.size() > 1)
      fail(
          Exit::config,
          "cuda.persistent_norm: its kernels could wait for ever beside those of NCCL. switch it off, or use one rank");
    context_.shared_bytes = device.shared_bytes();
  }

  Device& device() override { return device_; }
  std::unique_ptr<Op> make(const Spec& spec) override { return std::visit(Make{{context_, device_}, *this}, spec); }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return cuda::make_optimizer(spec, context_, device_, [&](std::int64_t rows, std::int64_t columns, int steps) {
      return make_newton_schulz(rows, columns, steps, context_, *cublas_);
    });
  }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    cuda::convert(context_, dst, dst_type, src, src_type, count);
  }
  int max_fusion_level() const override { return 3; }
  int default_fusion_level() const override { return 1; }  // levels 2 and 3 have not been run on a GPU yet
  std::int64_t padded_channels(const ConvSpec& spec) override { return cuda::padded_channels(spec, cudnn_); }
  bool merges_norm(const BatchNormSpec& s) const override { return s.activation != Activation::relu6; }
  std::string why_not_fused(const Spec& spec) override {
    if (const auto* linear = std::get_if<LinearSpec>(&spec)) return cuda::why_not_fused(*linear, *cublas_);
    if (const auto* conv = std::get_if<ConvSpec>(&spec)) return cuda::why_not_fused(*conv, cudnn_);
    return "";
  }
  void set_kernel_timing(bool on) override {
    cudnn_.choices().set_timing(on);
    matmuls_.set_timing(on);
  }
  std::string precision_note(DType) const override { return ""; }

 private:
  struct Make : MakeKernelOp {
    CudaBackend& b;
    using MakeKernelOp::operator();
    std::unique_ptr<Op> operator()(const ConvSpec& s) const { return make_conv(s, b.context_, b.cudnn_); }
    std::unique_ptr<Op> operator()(const TransposedConvSpec& s) const {
      return make_transposed_conv(s, b.context_, (*this)(s.conv()));
    }
    std::unique_ptr<Op> operator()(const LinearSpec& s) const { return make_linear(s, b.context_, *b.cublas_); }
    std::unique_ptr<Op> operator()(const LinearCrossEntropySpec& s) const {
      return make_linear_cross_entropy(s, (*this)(s.chunk_linear()), (*this)(s.chunk_loss()));
    }
    std::unique_ptr<Op> operator()(const BatchedMatmulSpec& s) const {
      return make_batched_matmul(s, b.context_, *b.cublas_);
    }
    std::unique_ptr<Op> operator()(const RecurrentSpec& s) const { return make_recurrent(s, b.context_, *b.cublas_); }
    std::unique_ptr<Op> operator()(const AttentionSpec& s) const { return make_attention(s, b.context_, b.cudnn_); }
  };
  CudaDevice& device_;
  LaunchContext context_;
  Buffer counters_;  // of context_: zero, as all memory that the device allocates
  PlanSelector matmuls_;
  double copy_bytes_per_second_;
  cudnn::Cudnn cudnn_;
  std::unique_ptr<Cublas> cublas_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(World& world, CudaDevice& device, const ExecutionOptions& options) {
  return std::make_unique<CudaBackend>(world, device, options);
}

}  // namespace millrace::cuda
