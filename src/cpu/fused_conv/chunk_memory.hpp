// Where a convolution by chunks has its buffers in the workspace: those of each thread, then the sums of each chunk,
// then the gradients of the weights of each part of the chunks.
#pragma once
#include <array>

#include "cpu/fused_conv/conv_chunks.hpp"

namespace millrace::cpu {

struct ChunkMemory {
  ChunkMemory() = default;
  // chunk and last: what the ops of a chunk and of a smaller last chunk need; last is empty if there is none.
  ChunkMemory(const ConvSpec&, const ConvChunks&, int threads, const MemoryRequirements& chunk,
              const MemoryRequirements& last);

  MemoryRequirements needs;
  std::int64_t parts = 1;                      // of the chunks, in the backward pass
  std::array<std::int64_t, 2> weight_count{};  // of weight and bias
  // Bytes from the beginning of the memory of a thread. The workspace of its op comes first.
  std::size_t src_at = 0, diff_src_at = 0, bits_at = 0, shared_at = 0, dst_at = 0;
  // Bytes from the beginning of the workspace, and of packed_weights.
  std::size_t thread_bytes = 0, sums_at = 0, weights_at = 0, part_bytes = 0, last_weights_at = 0;
};

}  // namespace millrace::cpu
