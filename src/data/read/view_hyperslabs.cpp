#include "millrace/data/read/view_hyperslabs.hpp"

#include <algorithm>

namespace millrace {
namespace {

Hyperslab whole_array(const Shape& array) {
  Hyperslab out{array, array};
  out.first.dims.fill(0);
  return out;
}

}  // namespace

Hyperslab patch_hyperslab(const ShardIndex& index, const Shard& shard, std::int64_t id) {
  const Pixel& pixel = (*shard.pixels)[std::size_t(id - shard.first)];
  const int rows = index.x.channels_first ? 1 : 0;
  const std::int64_t side = index.view.patch;
  const std::int64_t corner[2] = {std::int64_t(pixel.row) - side / 2, std::int64_t(pixel.column) - side / 2};
  Hyperslab out = whole_array(shard.array);
  for (const int a : {rows, rows + 1}) {
    const std::int64_t from = corner[a - rows];
    out.first[a] = std::max<std::int64_t>(0, from);
    out.extent[a] = std::min(shard.array[a], from + side) - out.first[a];
  }
  return out;
}

Hyperslab row_hyperslab(const Shard& shard, std::int64_t row) {
  Hyperslab out = whole_array(shard.array);
  out.first[0] = row;
  out.extent[0] = 1;
  return out;
}

Hyperslab window_hyperslab(const ShardIndex& index, const Shard& shard, std::int64_t id) {
  const std::int64_t windows = windows_of(shard.array, index.view);
  const std::int64_t number = id - shard.first;
  Hyperslab out = row_hyperslab(shard, number / windows);
  out.first[-1] = number % windows * index.view.stride;
  out.extent[-1] = index.view.window + 1;
  return out;
}

}  // namespace millrace
