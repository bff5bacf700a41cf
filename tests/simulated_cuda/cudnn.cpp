// A simulated cuDNN. Descriptors, heuristics and plans are those of the real library, made for the description of an
// H200. support/host/cudnn.cpp computes a plan on the host when its turn in the stream comes.
#include "support/host/cudnn.hpp"

#include <cudnn.h>
#include <fmt/core.h>

#include "millrace/base/files.hpp"
#include "simulated_cuda/runtime.hpp"

using namespace millrace::simulated;

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace {

std::mutex handles_mutex;
std::set<cudnnHandle_t>& handles() {
  static auto* const all = new std::set<cudnnHandle_t>;
  return *all;
}

// cuDNN documentation, cudnnCreate: the handle belongs to the GPU that is current, "to use the library on a different
// device, set the new device with cudaSetDevice() and then create another handle".
void check_handle(const char* call, cudnnHandle_t handle) {
  const std::lock_guard hold(handles_mutex);
  if (!handles().contains(handle)) violation(call, "the handle does not exist (any more)");
  if (const int device = this_thread().device; handle->device != device)
    violation(call, fmt::format("the handle belongs to GPU {}, the thread uses GPU {}", handle->device, device));
}

}  // namespace

namespace millrace::test {

constexpr std::size_t max_bytes = 32 << 20;

void execute_plan(cudnnHandle_t handle, const std::vector<PlanMemory>& memory, std::function<void()> run) {
  const char* call = "cudnnBackendExecute";
  check_handle(call, handle);
  simulated::check_enqueue(call, handle->stream);
  std::size_t bytes = 0;
  for (const PlanMemory& m : memory) {
    // CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: the alignment of pointers for this tensor.
    if (reinterpret_cast<std::uintptr_t>(m.data) % m.alignment != 0)
      simulated::violation(call, handle->stream,
                           fmt::format("the tensor at {} is not aligned to {} bytes", m.data, m.alignment));
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

// The same chapter: it allocates resources on the host and the GPU, and so cannot be part of a capture.
cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* out) {
  check_call("cudnnCreate", Safety::unsafe_in_capture);
  const std::lock_guard hold(handles_mutex);
  *out = new cudnnContext;
  (*out)->device = this_thread().device;
  handles().insert(*out);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  const std::lock_guard hold(handles_mutex);
  if (handles().erase(handle) == 0) violation("cudnnDestroy", "the handle does not exist (any more)");
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  check_handle("cudnnSetStream", handle);
  // "CUDNN_STATUS_MAPPING_ERROR: mismatch between the user stream and the cuDNN handle context."
  if (const int device = stream_of("cudnnSetStream", stream).device; device != handle->device)
    violation("cudnnSetStream", stream,
              fmt::format("the stream belongs to GPU {}, the handle to GPU {}", device, handle->device));
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
}
