// The CUDA backend on the host: its kernels, and its convolutions and attention with cuDNN's plans for an H200, which
// cudnn.cpp executes. Matrix multiplications are those of the CPU backend.
#include "cuda/dnn/attention.hpp"
#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "millrace/base/files.hpp"
#include "support/host/kernels_backend.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class HostConvBackend : public HostKernelsBackend {
 public:
  using HostKernelsBackend::HostKernelsBackend;
  std::unique_ptr<Op> make(const Spec& spec) override {
    if (const auto* conv = std::get_if<ConvSpec>(&spec))
      return cuda::make_conv(*conv, cuda::LaunchContext{nullptr, 2}, library_);
    if (const auto* attention = std::get_if<AttentionSpec>(&spec))
      return cuda::make_attention(*attention, cuda::LaunchContext{nullptr, 2}, library_);
    return HostKernelsBackend::make(spec);
  }
  std::int64_t padded_channels(const ConvSpec& spec) override { return cuda::padded_channels(spec, library_); }
  std::string why_not_fused(const Spec& spec) override {
    const auto* conv = std::get_if<ConvSpec>(&spec);
    return conv ? cuda::why_not_fused(*conv, library_) : HostKernelsBackend::why_not_fused(spec);
  }

 private:
  cuda::cudnn::Cudnn library_{read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"), {}};
};

}  // namespace

Device& device() { return static_cpu_device(); }
Backend& backend() { return static_backend<HostConvBackend>(); }

}  // namespace millrace::test
