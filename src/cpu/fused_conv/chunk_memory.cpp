#include "cpu/fused_conv/chunk_memory.hpp"

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/norm/norm_rows.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cpu {
namespace {

constexpr std::size_t parts_memory = 256 << 20;

}  // namespace

ChunkMemory::ChunkMemory(const ConvSpec& s, const ConvChunks& chunks, int threads, const MemoryRequirements& chunk,
                         const MemoryRequirements& last)
    : needs(chunk), weight_count{s.weight().count(), s.bias ? s.out_channels : 0} {
  MR_CHECK(chunk.saved == 0, "chunks of a convolution would overwrite what others save");
  last_weights_at = align64(chunk.packed_weights);
  if (last.packed_weights > 0) needs.packed_weights = last_weights_at + last.packed_weights;
  std::size_t end = 0;
  const auto reserve = [&](std::size_t& at, std::size_t bytes) {
    at = end;
    end += align64(bytes);
  };
  const auto largest = [&](auto&& count) { return std::size_t(std::max(count(false), count(true))); };
  const std::size_t element = size_of(s.dtype), pixel = std::size_t(s.src[-1]) * element;
  const std::size_t of_src = largest([&](bool is_last) { return chunks.spec(is_last).src.count(); }) * element;
  const std::size_t of_dst = largest([&](bool is_last) { return chunks.spec(is_last).dst().count(); }) * element;
  std::size_t own = 0;
  reserve(own, std::max(chunk.workspace, last.workspace));
  if (s.produces_diff_sums || chunks.of_group() > 1) {
    reserve(src_at, of_src);
    reserve(diff_src_at, of_src);
    reserve(shared_at, std::size_t(chunks.shared_rows()) * pixel);
  }
  if (s.produces_diff_sums) reserve(bits_at, batch_norm::bits_bytes(std::int64_t(of_src / pixel), s.src[-1]));
  if (s.produces_sums || s.normalises_diff_dst) reserve(dst_at, of_dst);
  thread_bytes = end;
  end *= std::size_t(threads);
  reserve(sums_at, std::size_t(chunks.count() * 2 * std::max(s.src[-1], s.out_channels)) * sizeof(double));
  part_bytes = align64(std::size_t(weight_count[0] + weight_count[1]) * sizeof(float));
  if (threads > 1)
    parts = std::min({chunks.groups(), std::int64_t(threads * ranges_per_thread),
                      std::max<std::int64_t>(1, std::int64_t(parts_memory / part_bytes))});
  reserve(weights_at, parts > 1 ? std::size_t(parts) * part_bytes : 0);
  needs.workspace = end;
}

}  // namespace millrace::cpu
