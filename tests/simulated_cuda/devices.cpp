// GPUs, versions and errors.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstring>

#include "simulated_cuda/runtime.hpp"

using namespace millrace::simulated;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().gpus;
  return done(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (this_thread().runs_work) violation("cudaSetDevice", "is called by work that runs in a stream");
  if (device < 0 || device >= settings().gpus) return done(cudaErrorInvalidDevice);
  this_thread().device = device;
  return done(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  *device = std::max(0, this_thread().device);
  return done(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (device < 0 || device >= settings().gpus) return done(cudaErrorInvalidDevice);
  *out = {};
  std::snprintf(out->name, sizeof out->name, "simulated H200");
  out->totalGlobalMem = settings().memory_bytes;
  out->major = 9;
  out->sharedMemPerMultiprocessor = 228 << 10;
  out->multiProcessorCount = 4;          // few, because each launches up to 32 blocks
  out->pciDomainID = host_of_process();  // GPUs of different hosts are not taken for one
  out->pciBusID = device + 1;
  std::memset(out->uuid.bytes, device + 1, sizeof out->uuid.bytes);
  return done(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, std::size_t(bytes), "%04x:%02x:00.0", unsigned(host_of_process()), device + 1);
  return done(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  if (device < 0 || device >= settings().gpus) return done(cudaErrorInvalidDevice);
  if (what == cudaDevAttrMemoryClockRate)
    *value = 3201000;  // kHz
  else if (what == cudaDevAttrGlobalMemoryBusWidth)
    *value = 6144;
  else
    violation("cudaDeviceGetAttribute", fmt::format("attribute {} is not simulated", int(what)));
  return done(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = context_lost() ? cudaErrorIllegalAddress : this_thread().last;
  this_thread().last = cudaSuccess;
  return last;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered:
      return "cudaErrorHostMemoryNotRegistered";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return cudaGetErrorName(error);
  }
}
}
