#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>

#include "cuda/dnn/cudnn.hpp"
#include "cuda/plans/device_timing.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/rng.hpp"

namespace millrace::cuda::cudnn {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Fills memory with copies of one block of random values in [-1, 1).
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
  MR_CUDA(cudaStreamSynchronize(stream));  // the copy reads `block`, which this function destroys
  for (; done < bytes; done += std::min(done, bytes - done))
    MR_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, to, std::min(done, bytes - done),
                            cudaMemcpyDeviceToDevice, stream));
}

std::size_t align256(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

std::vector<double> time_plans(cudnnHandle_t handle, StreamHandle stream, const Problem& p, std::vector<Call>& calls) {
  std::map<std::int64_t, std::size_t> offsets;  // by role
  std::size_t bytes = 0, workspace_bytes = 0;
  for (const Argument& argument : p.arguments) {
    offsets[argument.role] = argument.part_of ? offsets.at(argument.part_of) + argument.offset : bytes;
    if (!argument.part_of) bytes += align256(argument.bytes());
  }
  for (const Call& call : calls) workspace_bytes = std::max(workspace_bytes, call.workspace_bytes());

  const ScratchMemory memory(bytes + workspace_bytes);
  if (!memory.data()) {
    log::warn(
        fmt::format("{} is not timed (not enough free memory on the device). cuDNN's first proposal is used", p.key));
    return std::vector<double>(calls.size(), never);
  }
  fill_random(stream, memory.data(), bytes, p.dtype);
  std::vector<void*> pointers;
  auto* const begin = static_cast<std::byte*>(memory.data());
  for (const Argument& argument : p.arguments) pointers.push_back(begin + offsets.at(argument.role));
  void* const workspace = begin + bytes;

  return time_on_device(stream, calls.size(), [&](std::size_t c) {
    try {
      calls[c].run(handle, pointers, workspace);
      return true;
    } catch (const Error&) {  // cuDNN proposed the plan, but cannot run it
      return false;
    }
  });
}

}  // namespace millrace::cuda::cudnn
