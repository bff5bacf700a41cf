// The CUDA backend's convolution with cuDNN's plans and host arithmetic (cudnn_on_host.cpp).
#include "../../src/cuda/conv.hpp"
#include "../../src/cuda/cudnn.hpp"
#include "millrace/base/files.hpp"
#include "millrace/cpu/backend.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class ConvBackend : public Backend {
 public:
  Device& device() override { return test::device(); }
  std::unique_ptr<Op> make(const Spec& spec) override {
    return cuda::make_conv(std::get<ConvSpec>(spec), cuda::Context{nullptr, 2}, library_);
  }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&) override { fail(Exit::config, "no part of this"); }
  void convert(void*, DType, const void*, DType, std::int64_t) override { fail(Exit::config, "no part of this"); }
  int max_fusion_level() const override { return 0; }
  std::string precision_note(DType) const override { return ""; }

 private:
  cuda::cudnn::Cudnn library_{read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"), {}};
};

}  // namespace

Device& device() {
  static const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}
Backend& backend() {
  static ConvBackend backend;
  return backend;
}

}  // namespace millrace::test
