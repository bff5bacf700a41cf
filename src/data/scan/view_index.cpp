// Indexes files whose samples are cut out of an array: patches, pairs and windows of tokens (sample_view.hpp).
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "data/decode/convert_values.hpp"
#include "data/index/index_serialization.hpp"
#include "data/read/hyperslab_reader.hpp"
#include "data/scan/scan_file.hpp"
#include "data/scan/shard_values.hpp"
#include "data/scan/spatial_holdout.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/index/class_names.hpp"

namespace millrace {
namespace {

// Whether the channels of a scene come first: from its label map, unless data.layout is set.
bool channels_first(const Shape& x, const Shape& map, const io::File& file, const DataOptions& options,
                    std::string& decided_by) {
  const bool last = x[0] == map[0] && x[1] == map[1], first = x[1] == map[0] && x[2] == map[1];
  if (!first && !last)
    fail(Exit::data, "{}: '{}' is a map of {}, '{}' a scene of {}. the map needs the scene's height and width{}",
         file.path(), options.y, map.str(), options.x, x.str(), matlab_hint(file, options.y));
  if (options.layout == Layout::automatic && first != last) {
    decided_by = "by the label map";
    return first;
  }
  const SampleLayout requested = sample_layout(x, options.layout, file.get_string("/", "layout"), file.path());
  decided_by = requested.decided_by;
  if (requested.channels_first ? !first : !last)
    fail(Exit::data,
         "{}: '{}' of {} would be a scene with its channels {} ({}), which the map of {} does not fit. set data.layout",
         file.path(), options.x, x.str(), requested.channels_first ? "first" : "last", requested.decided_by, map.str());
  return requested.channels_first;
}

std::vector<Pixel> labelled_pixels(const io::File& file, const io::DatasetInfo& y, std::int64_t height,
                                   std::int64_t width) {
  std::vector<Pixel> out;
  const std::int64_t rows = std::max<std::int64_t>(1, (1 << 20) / width);  // read at a time
  std::vector<std::int64_t> block(std::size_t(std::min(rows, height) * width));
  for (std::int64_t row = 0; row < height; row += rows) {
    const std::int64_t count = std::min(rows, height - row) * width;
    file.read_rows(y.name, row, count / width, DType::i64, block.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = block[std::size_t(i)];
      if (value <= 0) continue;
      if (value > std::int64_t(1) << 30)
        fail(Exit::data, "{}: '{}' holds {} at {}, {}, which is not a class number", file.path(), y.name, value,
             row + i / width, i % width);
      out.push_back({std::uint32_t(row + i / width), std::uint32_t(i % width), std::int32_t(value - 1)});
    }
  }
  if (out.empty())
    fail(Exit::data,
         "{}: no pixel of '{}' is labelled. class numbers start at 1; 0 and negative numbers mark pixels without a "
         "label",
         file.path(), y.name);
  return out;
}

// The add_* functions complete `one`, the index of this file, and `shard`.
void add_scene(ShardIndex& one, Shard& shard, const io::File& file, const DataOptions& options) {
  const io::DatasetInfo y = require_readable_dataset(file, options.y, "data.y");
  const std::int64_t side = options.view.patch;
  const Shape map = shape_of(y.shape, 0);
  if (shard.array.rank != 3 || map.rank != 2 || !is_integer(y.dtype))
    fail(Exit::data,
         "{}: data.sample = patch needs a scene of height, width and channels as '{}', here {}, and a map of integers "
         "as '{}', here {} {}",
         file.path(), options.x, shard.array.str(), options.y, map.str(), name_of(y.dtype));
  one.x.channels_first = channels_first(shard.array, map, file, options, one.x.layout_decided_by);
  const std::int64_t height = map[0], width = map[1], channels = shard.array[one.x.channels_first ? 0 : 2];
  if (side / 2 >= std::min(height, width) || std::max(height, width) > std::int64_t(UINT32_MAX))
    fail(Exit::data,
         "{}: patches of {}x{} do not fit a scene of {}x{}. at most half of a patch may lie outside the scene. lower "
         "data.patch",
         file.path(), side, side, height, width);
  std::vector<Pixel> pixels = labelled_pixels(file, y, height, width);
  for (const Pixel& p : pixels) one.classes.count = std::max<std::int64_t>(one.classes.count, p.label + 1);
  one.classes.count = std::max(one.classes.count, file.get_int("/", "classes").value_or(0));
  if (options.view.holdout > 0) pixels = spatial_holdout(std::move(pixels), options.view, options.validation_part);
  shard.rows = std::int64_t(pixels.size());
  shard.pixels = std::make_shared<const std::vector<Pixel>>(std::move(pixels));
  one.sample = {side, side, channels};
  one.y.dtype = DType::i32;
}

void add_pairs(ShardIndex& one, Shard& shard, const io::File& file, const DataOptions& options) {
  const Shape stored = shape_of({shard.array.dims.begin(), shard.array.dims.begin() + shard.array.rank}, 1);
  if (stored.rank == 0)
    fail(Exit::data, "{}: '{}' holds single values. a sample needs at least one dimension", file.path(), options.x);
  const SampleLayout layout = sample_layout(stored, options.layout, file.get_string("/", "layout"), file.path());
  one.sample = one.y.target = layout.sample;
  one.x.channels_first = layout.channels_first;
  one.x.layout_decided_by = layout.decided_by;
  one.y.labels = false;
  one.y.dtype = DType::f32;
  shard.rows = std::max<std::int64_t>(0, shard.array[0] - options.view.lead);
}

// Reads all tokens of a file. Needed where neither data.vocabulary nor the file gives the vocabulary.
std::int64_t largest_token(const ShardIndex& one, const Shard& shard) {
  ShardIndex alone = one;
  alone.shards = {shard};
  HyperslabReader reader(alone, false, 16u << 20);
  constexpr std::int64_t block_tokens = 1 << 18;
  std::vector<char> block(std::size_t(block_tokens) * size_of(one.x.dtype));
  std::int64_t largest = 0;
  const Shape& array = shard.array;
  for (std::int64_t row = 0; row < (array.rank > 1 ? array[0] : 1); ++row)
    for (std::int64_t at = 0; at < array[-1]; at += block_tokens) {
      Shape first = array, extent = array;
      first[0] = row;
      extent[0] = 1;
      first[-1] = at;
      extent[-1] = std::min(block_tokens, array[-1] - at);
      reader.read(0, {first, extent}, block.data(), 0);
      if (one.x.big_endian) swap_bytes(block.data(), std::size_t(extent[-1]), size_of(one.x.dtype));
      for (std::int64_t i = 0; i < extent[-1]; ++i) {
        const auto token = std::int64_t(value_at(block.data(), one.x.dtype, i));
        if (token < 0 || token == INT32_MAX)
          fail(Exit::data, "{} holds the token {} (unsigned {}) at position {}. tokens must be from 0 to 2147483646",
               shard.path, token, std::uint32_t(token), at + i);
        largest = std::max(largest, token);
      }
    }
  return largest;
}

void add_tokens(ShardIndex& one, Shard& shard, const io::File& file, const DataOptions& options) {
  const DType t = one.x.dtype;
  if (shard.array.rank > 2 || (t != DType::u8 && t != DType::u16 && t != DType::i32))
    fail(Exit::data,
         "{}: data.sample = tokens needs '{}' to be one text, or one text per row, of integers of 8, 16 or 32 bits, "
         "here it is {} {}",
         file.path(), options.x, shard.array.str(), name_of(t));
  if (!shard.hdf5_only_reason.empty()) return;                  // make_source reports the error
  const auto known = file.get_int("/", "classes").value_or(0);  // 0: a packed file without labels
  one.classes.count = options.view.vocabulary > 0 ? options.view.vocabulary
                      : known > 0                 ? known
                                                  : largest_token(one, shard) + 1;
  one.sample = {options.view.window};
  if (options.view.token_labels == TokenLabels::every) one.y.target = one.sample;
  one.y.dtype = DType::i32;
  shard.rows = windows_of(shard.array, options.view) * (shard.array.rank > 1 ? shard.array[0] : 1);
}

}  // namespace

ShardIndex scan_view(const std::string& path, const DataOptions& options) {
  const io::File file = io::File::open(path);
  const bool tokens = options.view.sample == SampleKind::tokens;
  const io::DatasetInfo x = require_readable_dataset(file, options.x, "data.x", tokens);
  refuse_int64(path, options.x, x.dtype);
  Shard shard;
  shard.path = path;
  record_file_status(shard);
  shard.x_offset = x.offset.value_or(0);
  shard.array = shape_of(x.shape, 0);
  require_bytes(shard, "x", x.offset, std::uint64_t(shard.array.count()) * size_of(x.dtype));
  list_chunks(shard, file, x, &shard.x_chunks);
  ShardIndex one;
  one.x.name = options.x;
  one.y.name = options.y;
  one.x.dtype = x.dtype;
  one.x.big_endian = x.big_endian;
  if (options.view.sample == SampleKind::patch)
    add_scene(one, shard, file, options);
  else if (tokens)
    add_tokens(one, shard, file, options);
  else
    add_pairs(one, shard, file, options);
  if (shard.rows == 0) return one;
  one.classes.names = parse_class_names(file.get_string("/", "class_names").value_or(""));
  if (!tokens) read_values(one, file, {options.x}, options);
  one.rows = shard.rows;
  one.shards.push_back(shard);
  return one;
}

std::string no_samples_reason(const DataOptions& o) {
  if (o.view.sample == SampleKind::rows) return "";
  if (o.view.sample == SampleKind::pair)
    return fmt::format(": no row has a partner {} rows later in its file. lower data.lead", o.view.lead);
  if (o.view.sample == SampleKind::tokens)
    return fmt::format(": no text is longer than a window of {} tokens. lower data.window", o.view.window);
  return fmt::format(": no labelled pixel is {}. change data.holdout, or lower data.patch",
                     o.validation_part ? "held out" : "outside the held-out blocks and their margin");
}

}  // namespace millrace
