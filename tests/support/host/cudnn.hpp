// How cudnn.cpp executes the plans of cuDNN: at once (cudnn_now.cpp), or in the stream of a handle
// (simulated_cuda/cudnn.cpp).
#pragma once
#include <cudnn.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace millrace::test {

struct PlanMemory {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool workspace = false;
  std::size_t alignment = 1;  // that the plan demands (CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)
};

// memory: all that the plan reads and writes.
void execute_plan(cudnnHandle_t, const std::vector<PlanMemory>& memory, std::function<void()> run);
// The description of the GPU that handles stand for; null if the program uses descriptions itself.
cudnnBackendDescriptor_t described_gpu();

}  // namespace millrace::test
