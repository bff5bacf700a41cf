#include <cuda_runtime.h>

#include <algorithm>
#include <deque>

#include "cuda/dnn/cudnn.hpp"
#include "cuda/dnn/time_candidates.hpp"
#include "cuda/runtime/check.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/rng.hpp"

namespace millrace::cuda::cudnn {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Device memory and events that end with the scope.
struct Memory {
  void* data = nullptr;
  ~Memory() { cudaFree(data); }
};
struct Event {
  cudaEvent_t raw = nullptr;
  Event() { MR_CUDA(cudaEventCreate(&raw)); }
  ~Event() { cudaEventDestroy(raw); }
  Event(const Event&) = delete;
};

// A block of values in [-1, 1), laid end to end.
void fill_random(StreamHandle stream, void* to, std::size_t bytes, DType dtype) {
  std::vector<std::uint32_t> block(std::min<std::size_t>((bytes + 3) / 4, 1 << 18));
  for (std::size_t i = 0; i < block.size(); ++i) {
    const Random4 r = philox(rng_key(1, RngPurpose::synthetic), 0, i);
    const float a = 2 * uniform01(r.v[0]) - 1, b = 2 * uniform01(r.v[1]) - 1;
    if (dtype == DType::f32)
      block[i] = std::bit_cast<std::uint32_t>(a);
    else if (dtype == DType::bf16)
      block[i] = bf16(a).bits | std::uint32_t(bf16(b).bits) << 16;
    else
      block[i] = f16(a).bits | std::uint32_t(f16(b).bits) << 16;
  }
  std::size_t done = std::min(bytes, block.size() * 4);
  MR_CUDA(cudaMemcpyAsync(to, block.data(), done, cudaMemcpyHostToDevice, stream));
  MR_CUDA(cudaStreamSynchronize(stream));  // block ends here
  for (; done < bytes; done += std::min(done, bytes - done))
    MR_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, to, std::min(done, bytes - done),
                            cudaMemcpyDeviceToDevice, stream));
}

std::size_t align256(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

std::vector<double> time_plans(cudnnHandle_t handle, StreamHandle stream, const ConvProblem& p,
                               std::vector<Call>& calls) {
  std::vector<std::size_t> sizes;
  for (const Argument& argument : p.arguments()) sizes.push_back(argument.bytes());
  std::size_t bytes = 0, workspace_bytes = 0;
  for (const std::size_t size : sizes) bytes += align256(size);
  for (const Call& call : calls) workspace_bytes = std::max(workspace_bytes, call.workspace_bytes());

  Memory memory;
  if (cudaMalloc(&memory.data, bytes + workspace_bytes) != cudaSuccess) {
    cudaGetLastError();
    log::warn(cat(p.key(), " is not timed (no memory for it on the device). cuDNN's own choice is taken"));
    return std::vector<double>(calls.size(), never);
  }
  fill_random(stream, memory.data, bytes, p.dtype);
  std::vector<void*> pointers;
  auto* at = static_cast<std::byte*>(memory.data);
  for (const std::size_t size : sizes) pointers.push_back(at), at += align256(size);

  std::deque<Event> marks(1);
  const auto median = [&](std::size_t c, int runs) {
    while (int(marks.size()) <= runs) marks.emplace_back();
    try {
      calls[c].run(handle, pointers, at);  // the first is slow, and while it runs the others are enqueued
    } catch (const Error&) {               // one that cuDNN proposes and cannot run
      (void)cudaGetLastError();
      return never;
    }
    for (int i = 0; i <= runs; ++i) {
      MR_CUDA(cudaEventRecord(marks[std::size_t(i)].raw, stream));
      if (i < runs) calls[c].run(handle, pointers, at);
    }
    MR_CUDA(cudaStreamSynchronize(stream));
    std::vector<float> times(static_cast<std::size_t>(runs));
    for (std::size_t i = 0; i < times.size(); ++i)
      MR_CUDA(cudaEventElapsedTime(&times[i], marks[i].raw, marks[i + 1].raw));
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return double(times[times.size() / 2]) * 1e-3;
  };
  return time_candidates(calls.size(), median);
}

}  // namespace millrace::cuda::cudnn
