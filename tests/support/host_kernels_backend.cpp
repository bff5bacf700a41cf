#include "support/host_kernels_backend.hpp"

#include "support/op_harness.hpp"

namespace millrace::test {

Device& device() {
  static const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}
Backend& backend() {
  static HostKernelsBackend backend(device());
  return backend;
}

}  // namespace millrace::test
