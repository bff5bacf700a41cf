// Runs the test cases on the CUDA backend with the first GPU, in its memory. Kernels are not timed, and no choices are
// saved for the user's runs. Exits with 77 (skipped) if there is no GPU.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cuda/backend.hpp"
#include "cuda/runtime/device.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

// Never destroyed, because CUDA may shut down before static objects are destroyed.
cuda::CudaDevice& first_gpu() {
  static auto* const device = new cuda::CudaDevice(0, {});
  return *device;
}

}  // namespace

Device& device() { return first_gpu(); }
Backend& backend() {
  static Backend* const backend = [] {
    ExecutionOptions options;
    options.cuda.autotune = false;
    options.deterministic = true;  // some cases run twice and compare bits
    return cuda::make_cuda_backend(*solo_world().release(), first_gpu(), options).release();
  }();
  return *backend;
}

}  // namespace millrace::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string why_not;
  if (!millrace::cuda_usable(*millrace::solo_world(), &why_not)) {
    std::printf("skipped: %s\n", why_not.c_str());
    return 77;
  }
  char folder[] = "/tmp/millrace_gpu_XXXXXX";
  if (!::mkdtemp(folder)) return 1;
  ::setenv("XDG_CACHE_HOME", folder, 1);
  const int failures = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failures;
}
