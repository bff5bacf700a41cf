// The CUDA backend on the first GPU, in memory that the host sees too, so that the cases read and write it as they do
// the processor's. Nothing is timed, and no choice of kernels is kept for the user's runs. Exits with 77 (skipped)
// where there is no GPU.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "../../src/cuda/backend.hpp"
#include "../../src/cuda/check.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class ManagedDevice : public cuda::CudaDevice {
 public:
  using CudaDevice::CudaDevice;
  void* allocate(MemoryKind, std::size_t bytes) override {
    void* memory = nullptr;
    MR_CUDA(cudaMallocManaged(&memory, bytes));
    synchronize();  // where the host must not touch such memory while a kernel runs
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(MemoryKind, void* memory, std::size_t) noexcept override { cudaFree(memory); }
};

// Never destroyed: CUDA may be gone by the time that static objects end.
ManagedDevice& managed() {
  static auto* const device = new ManagedDevice({}, {});
  return *device;
}

}  // namespace

Device& device() { return managed(); }
Backend& backend() {
  static Backend* const backend = [] {
    ComputeOptions options;
    options.cuda.tune = false;
    return cuda::make_cuda_backend(*solo_world().release(), managed(), options).release();
  }();
  return *backend;
}

}  // namespace millrace::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string why_not;
  if (!millrace::cuda_usable(&why_not)) {
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
