#include "support/host/kernels_backend.hpp"

#include "support/op_harness.hpp"

namespace millrace::test {

Device& device() { return static_cpu_device(); }
Backend& backend() { return static_backend<HostKernelsBackend>(); }

}  // namespace millrace::test
