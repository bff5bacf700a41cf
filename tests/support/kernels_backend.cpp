// The CUDA backend's own kernels, run on the host. What a library of NVIDIA's computes there has no place here.
#include "../../src/cuda/kernels.hpp"
#include "millrace/base/error.hpp"
#include "millrace/cpu/backend.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

struct Make {
  cuda::Context context;
  std::unique_ptr<Op> operator()(const ConvSpec&) const { fail(Exit::config, "cuDNN's"); }
  std::unique_ptr<Op> operator()(const LinearSpec&) const { fail(Exit::config, "cuBLAS's"); }
  std::unique_ptr<Op> operator()(const BatchNormSpec& s) const { return cuda::make_batch_norm(s, context); }
  std::unique_ptr<Op> operator()(const PoolSpec& s) const { return cuda::make_pool(s, context); }
  std::unique_ptr<Op> operator()(const ActivationSpec& s) const { return cuda::make_activation(s, context); }
  std::unique_ptr<Op> operator()(const AddSpec& s) const { return cuda::make_add(s, context); }
  std::unique_ptr<Op> operator()(const DropoutSpec& s) const { return cuda::make_dropout(s, context); }
  std::unique_ptr<Op> operator()(const InputSpec& s) const { return cuda::make_input(s, context, test::device()); }
  std::unique_ptr<Op> operator()(const CrossEntropySpec& s) const { return cuda::make_cross_entropy(s, context); }
  std::unique_ptr<Op> operator()(const MseSpec& s) const { return cuda::make_mse(s, context); }
};

class KernelsBackend : public Backend {
 public:
  Device& device() override { return test::device(); }
  std::unique_ptr<Op> make(const Spec& spec) override { return std::visit(Make{context_}, spec); }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return cuda::make_optimizer(spec, context_, device());
  }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    cuda::convert(context_, dst, dst_type, src, src_type, count);
  }
  int max_fusion_level() const override { return 1; }
  std::string precision_note(DType) const override { return ""; }

 private:
  cuda::Context context_{nullptr, 2};  // few blocks, so that a thread has several elements
};

}  // namespace

Device& device() {
  static const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}
Backend& backend() {
  static KernelsBackend backend;
  return backend;
}

}  // namespace millrace::test
