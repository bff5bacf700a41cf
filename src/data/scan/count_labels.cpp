#include <algorithm>

#include "data/decode/convert_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

void add_labels(const std::vector<std::int32_t>& labels, const std::string& where, std::vector<std::int64_t>& counts) {
  for (const std::int32_t label : labels) {
    if (label < 0) continue;
    if (std::size_t(label) >= counts.size())
      fail(Exit::data, "{}: label {} is not below the number of classes, {}. correct it", where, label, counts.size());
    ++counts[std::size_t(label)];
  }
}

// The labels that lie beside the samples in a file.
void count_in_file(const ShardIndex& index, const Shard& shard, std::vector<std::int64_t>& counts) {
  const io::File file = io::File::open(shard.path);
  const std::int64_t width = index.y.target.count(), block = std::max<std::int64_t>(1, (1 << 16) / width);
  std::vector<char> stored(std::size_t(block * width) * size_of(index.y.dtype));
  for (std::int64_t row = 0; row < shard.rows; row += block) {
    const std::int64_t rows = std::min(block, shard.rows - row);
    file.read_rows(index.y.name, row, rows, index.y.dtype, stored.data());
    std::vector<std::int32_t> labels(std::size_t(rows * width));
    labels_to_int32(stored.data(), index.y.dtype, rows * width, index.y.ignore_label, labels.data());
    for (std::int64_t r = 0; index.selection && r < rows; ++r)
      if (!index.selection->contains(shard.first + row + r)) std::fill_n(labels.data() + r * width, width, -1);
    add_labels(labels, shard.path, counts);
  }
}

void count_generated(World& world, const ShardIndex& index, std::vector<std::int64_t>& counts) {
  const auto source = make_source(world, index, Reader::automatic);
  std::vector<char> x(index.sample_bytes());
  std::vector<std::int32_t> y(std::size_t(index.y.target.count()));
  for (std::int64_t at = world.rank(); at < index.selected_rows(); at += world.size()) {
    const std::int64_t id = index.selected(at);
    source->read({&id, 1}, x.data(), y.data());
    add_labels(y, index.synthetic_spec, counts);
  }
}

}  // namespace

std::vector<std::int64_t> count_labels(World& world, const ShardIndex& index) {
  std::vector<std::int64_t> counts(std::size_t(index.classes.count));
  const std::string problem = message_of([&] {
    if (index.synthetic()) return count_generated(world, index, counts);
    for (std::size_t s = std::size_t(world.rank()); s < index.shards.size(); s += std::size_t(world.size())) {
      const Shard& shard = index.shards[s];
      if (shard.pixels)
        for (const Pixel& pixel : *shard.pixels) ++counts.at(std::size_t(pixel.label));
      else
        count_in_file(index, shard, counts);
    }
  });
  world.agree(Exit::data, problem);
  world.all_reduce(counts, World::Reduce::sum);
  return counts;
}

}  // namespace millrace
