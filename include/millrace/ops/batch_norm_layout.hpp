// How the blocks of the CUDA backend's batch norm divide a tensor (src/cuda/kernels/batch_norm_tiling.hpp), and which
// tensors they can keep in the memory of the multiprocessors. Needs no CUDA: src/roofline predicts with it.
#pragma once
#include <cstdint>

namespace millrace::batch_norm {

constexpr int pack = 8;           // elements of a pack; their ReLU bits fill one byte
constexpr int threads_max = 256;  // of a block

struct Layout {
  std::int64_t count, width;    // elements of the tensor, and of a line
  int whole_lines, lines;       // complete lines, and all of them: the last line may be shorter
  std::int64_t channels, rows;  // of the tensor as the caller describes it
  int tile, tiles, lanes;       // packs of a tile; tiles of a line; lines that a block handles at a time

  int threads() const { return (lanes * tile + 31) / 32 * 32; }  // of a block
  // The number of blocks that share the lines of a tile, of `blocks` in all. Each gets a few lines if there are enough.
  int slabs(int blocks) const;
};
Layout layout_of(std::int64_t count, std::int64_t channels);  // Error(config): the tensor is too large

// The number of lines that a thread loads at once, so that 64 bytes of `inputs` tensors are in flight.
constexpr int lines_at_once(int inputs, int element_bytes) {
  return 8 / inputs / element_bytes < 1 ? 1 : 8 / inputs / element_bytes;
}

// Memory that the blocks of a multiprocessor share, and the number of multiprocessors. All 0: nothing is kept.
struct OnChipMemory {
  int multiprocessors = 0;
  std::int64_t bytes = 0;
};
constexpr int resident_blocks = 2;  // for each multiprocessor, if the kernel keeps its tensors

// A kernel that keeps `kept` tensors, and loads `loaded` at a time.
struct ResidentPlan {
  int slabs = 0, lines = 0;  // blocks of a tile; lines that a thread loads at once
  int slots = 0;             // packs of each tensor that a thread keeps
  std::int64_t kept_at = 0;  // in the shared memory, behind the sums of the lanes
  std::int64_t shared_bytes = 0;
  bool fits = false;
};
ResidentPlan plan_resident(const Layout&, int element_bytes, int kept, int loaded, const OnChipMemory&);
// The two kernels: forward keeps src, backward keeps diff_dst and src.
inline ResidentPlan plan_forward(const Layout& l, int element_bytes, bool residual, const OnChipMemory& memory) {
  return plan_resident(l, element_bytes, 1, residual ? 2 : 1, memory);
}
inline ResidentPlan plan_backward(const Layout& l, int element_bytes, const OnChipMemory& memory) {
  return plan_resident(l, element_bytes, 2, 2, memory);
}

}  // namespace millrace::batch_norm
