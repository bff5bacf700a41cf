// Copies and fills.
#include <fmt/core.h>

#include <cstring>
#include <future>

#include "simulated_cuda/memory/memory.hpp"
#include "simulated_cuda/runtime.hpp"

namespace millrace::simulated {
namespace {

// Checks one side of a copy. device: the kind of copy says that the GPU has the memory, which may be page-locked memory
// of the host; otherwise it must not be memory of the GPU.
Place check_side(const char* call, cudaStream_t stream, const void* p, std::size_t bytes, bool device) {
  const Place place = place_of(p);
  if (device ? place == Place::pageable : place == Place::device)
    violation(call, stream,
              fmt::format("{} is {}memory of the GPU, which the kind of copy contradicts", p, device ? "no " : ""));
  if (place != Place::pageable && !lies_in_allocation(p, bytes))
    violation(call, stream, fmt::format("{} bytes at {} reach beyond an allocation", bytes, p));
  return place;
}

// "API synchronization behavior": the copy of pageable memory is staged before the call returns; a copy to pageable
// memory returns only when it is complete.
cudaError_t copy_pageable(cudaStream_t stream, void* to, const void* from, std::size_t bytes, bool to_device) {
  if (to_device) {
    auto staged =
        std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    enqueue(stream, "copy", [=] { std::memcpy(to, staged->data(), bytes); }, {Activity::Kind::copy, "", bytes});
    return cudaSuccess;
  }
  enqueue(stream, "copy", [=] { std::memcpy(to, from, bytes); }, {Activity::Kind::copy, "", bytes});
  stream_of("cudaMemcpyAsync", stream).wait_until_idle();
  return cudaSuccess;
}

}  // namespace
}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const char* call = "cudaMemcpyAsync";
  check_enqueue(call, stream);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const Place target = check_side(call, stream, to, bytes, to_device);
  const Place source = check_side(call, stream, from, bytes, from_device);
  if (target == Place::pageable || source == Place::pageable) {
    // A replay would read or write memory that the program has long given up.
    if (is_capturing(stream)) violation(call, stream, "a copy of pageable memory in a capture");
    return done(copy_pageable(stream, to, from, bytes, to_device));
  }
  enqueue(stream, "copy", [=] { std::memmove(to, from, bytes); }, {Activity::Kind::copy, "", bytes});
  return done(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const char* call = "cudaMemsetAsync";
  check_enqueue(call, stream);
  check_side(call, stream, to, bytes, true);
  enqueue(stream, "fill", [=] { std::memset(to, value, bytes); }, {Activity::Kind::fill, "", bytes});
  return done(cudaSuccess);
}

// "Asynchronous with respect to the host unless the target is page-locked host memory", in the null stream.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  check_call("cudaMemset", Safety::unsafe_in_capture);
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
}
