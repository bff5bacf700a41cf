#include "cpu/backend.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {

Device& device() {
  static const std::unique_ptr<Device> device = make_cpu_device();
  return *device;
}
Backend& backend() {
  static const std::unique_ptr<Backend> backend = make_cpu_backend(device());
  return *backend;
}

}  // namespace millrace::test
