// The CUDA backend's operations that are made of products, run on the host with products in plain loops.
#include "../../src/cuda/linear.hpp"
#include "millrace/cpu/backend.hpp"
#include "support/cublas_on_host.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class ProductsBackend : public Backend {
 public:
  Device& device() override { return test::device(); }
  std::unique_ptr<Op> make(const Spec& spec) override {
    return cuda::make_linear(std::get<LinearSpec>(spec), {nullptr, 2}, cublas_);
  }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&) override { return nullptr; }
  void convert(void*, DType, const void*, DType, std::int64_t) override {}
  int max_fusion_level() const override { return 1; }
  std::string precision_note(DType) const override { return ""; }

 private:
  CublasOnHost cublas_;
};

}  // namespace

Device& device() {
  static const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}
Backend& backend() {
  static ProductsBackend backend;
  return backend;
}

}  // namespace millrace::test
