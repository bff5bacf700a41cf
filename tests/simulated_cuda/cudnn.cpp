// A simulated cuDNN. Descriptors, heuristics and plans are those of the real library, made for the description of an
// H200. support/host/cudnn.cpp computes a plan on the host when its turn in the stream comes.
#include "support/host/cudnn.hpp"

#include <cudnn.h>
#include <fmt/core.h>

#include "millrace/base/files.hpp"
#include "simulated_cuda/simulator.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace millrace::test {

constexpr std::size_t max_bytes = 32 << 20;

void execute_plan(cudnnHandle_t handle, const std::vector<PlanMemory>& memory, std::function<void()> run) {
  const char* call = "cudnnBackendExecute";
  simulated::check_enqueue(call, handle->stream);
  std::size_t bytes = 0;
  for (const PlanMemory& m : memory) {
    simulated::check_accessible_range(call, handle->stream, m.data, m.bytes);
    if (!m.workspace) bytes += m.bytes;
  }
  // Benchmarks of a GPU's rate run such convolutions.
  if (bytes > max_bytes)
    return simulated::leave_out(call, handle->stream, fmt::format("a plan on more than {} MiB", max_bytes >> 20));
  simulated::enqueue(handle->stream, "a plan of cuDNN", std::move(run),
                     {simulated::Activity::Kind::kernel, "sm90_xmma_convolution", 0});
}

cudnnBackendDescriptor_t described_gpu() {
  static const cudnnBackendDescriptor_t gpu = [] {
    cudnnBackendDescriptor_t made = nullptr;
    const std::string text = read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json");
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                             std::int64_t(text.size()), text.data());
    if (cudnnBackendFinalize(made) != CUDNN_STATUS_SUCCESS)
      simulated::violation("cudnnCreate", "cuDNN does not take the description of the GPU");
    return made;
  }();
  return gpu;
}

}  // namespace millrace::test

extern "C" {

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* out) {
  *out = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
}
