// Runs the test cases on the CUDA backend with the first GPU. All memory is page-locked host memory that the GPU can
// access, so that the cases can read and write it as they do with the CPU. (Managed memory is not available
// everywhere.) Kernels are not timed, and no choices are saved for the user's runs. Exits with 77 (skipped) if there is
// no GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cuda/backend.hpp"
#include "cuda/errors/check.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {
namespace {

class MappedDevice : public cuda::CudaDevice {
 public:
  using CudaDevice::CudaDevice;
  void* allocate(MemoryKind, std::size_t bytes) override {
    void* memory = nullptr;
    MR_CUDA(cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocMapped | cudaHostAllocPortable));
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(MemoryKind, void* memory, std::size_t) noexcept override { cudaFreeHost(memory); }
};

// Never destroyed, because CUDA may shut down before static objects are destroyed.
MappedDevice& mapped() {
  static auto* const device = new MappedDevice(0, {});
  return *device;
}

}  // namespace

Device& device() { return mapped(); }
Backend& backend() {
  static Backend* const backend = [] {
    ExecutionOptions options;
    options.cuda.autotune = false;
    options.deterministic = true;  // some cases run twice and compare bits
    return cuda::make_cuda_backend(*solo_world().release(), mapped(), options).release();
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
