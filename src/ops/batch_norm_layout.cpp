#include "millrace/ops/batch_norm_layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "millrace/base/error.hpp"

namespace millrace::batch_norm {
namespace {

constexpr int tile_max = 32;
constexpr std::int64_t reserved_bytes = 1024;  // that the GPU takes for each block

}  // namespace

int Layout::slabs(int blocks) const {
  const int most = std::max(1, blocks / tiles), few = lanes * 4;
  return std::min(most, (lines + few - 1) / few);
}

Layout layout_of(std::int64_t count, std::int64_t channels) {
  Layout l{};
  l.count = count;
  l.channels = channels;
  l.rows = count / channels;
  l.width = std::lcm(channels, std::int64_t(pack));
  const std::int64_t lines = (count + l.width - 1) / l.width;
  if (lines > std::numeric_limits<int>::max() / 2)
    fail(Exit::config, "batch norm: an input of {} elements is too large. use a smaller micro-batch", count);
  l.whole_lines = int(count / l.width);
  l.lines = int(lines);
  const std::int64_t packs = l.width / pack;
  l.tiles = int((packs + tile_max - 1) / tile_max);
  l.tile = int((packs + l.tiles - 1) / l.tiles);
  l.lanes = std::min(threads_max / l.tile, l.lines);
  return l;
}

ResidentPlan plan_resident(const Layout& l, int element_bytes, int kept, int loaded, const OnChipMemory& memory) {
  ResidentPlan out;
  const int blocks = memory.multiprocessors * resident_blocks;
  if (blocks < l.tiles) return out;
  out.slabs = l.slabs(blocks);
  out.lines = lines_at_once(loaded, element_bytes);
  // A thread loads the lines of a group at once. One block handles the lines behind the last whole group, but then one
  // group less than the others, or all have equally many.
  const int groups = l.whole_lines / (l.lanes * out.lines);
  out.slots = (groups / out.slabs + 1) * out.lines;
  const std::int64_t packs = std::int64_t(l.lanes) * l.tile;
  out.kept_at = packs * pack * std::int64_t(sizeof(float));
  out.shared_bytes = out.kept_at + packs * out.slots * kept * pack * element_bytes;
  out.fits = out.shared_bytes + reserved_bytes <= memory.bytes / resident_blocks;
  return out;
}

}  // namespace millrace::batch_norm
