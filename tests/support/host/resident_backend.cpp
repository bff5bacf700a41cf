// The kernels of the CUDA backend on the host, with norms that keep their tensors on the chip where they fit.
#include "support/host/kernels_backend.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class ResidentBackend : public HostKernelsBackend {
 public:
  explicit ResidentBackend(Device& device) : HostKernelsBackend(device, 4, 228 << 10) {}
};

}  // namespace

Device& device() { return static_cpu_device(); }
Backend& backend() { return static_backend<ResidentBackend>(); }

}  // namespace millrace::test
