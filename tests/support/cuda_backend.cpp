// The CUDA backend on the first GPU, in memory that the host sees too, so that the cases read and write it as they do
// the processor's. Exits with 77 (skipped) where there is no GPU.
#include <cuda_runtime.h>

#include <cstdio>

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
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(MemoryKind, void* memory, std::size_t) noexcept override { cudaFree(memory); }
};

World& world() {
  static const std::unique_ptr<World> world = solo_world();
  return *world;
}

ManagedDevice& managed() {
  static ManagedDevice device({}, {});
  return device;
}

}  // namespace

Device& device() { return managed(); }
Backend& backend() {
  static const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(world(), managed(), {});
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
  return RUN_ALL_TESTS();
}
