// What the files hold whose samples are cut out of an array. Rank 0 alone reads it.
#include <algorithm>
#include <filesystem>

#include "data/decode/convert_values.hpp"
#include "data/index/index_serialization.hpp"
#include "data/read/hyperslab_reader.hpp"
#include "data/scan/shard_index.hpp"
#include "data/scan/shard_values.hpp"
#include "data/scan/spatial_holdout.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/index/class_names.hpp"

namespace millrace {
namespace {

// Of a scene, told by its label map unless said.
bool channels_first(const Shape& x, const Shape& map, const io::File& file, const DataOptions& options,
                    std::string& decided_by) {
  const bool last = x[0] == map[0] && x[1] == map[1], first = x[1] == map[0] && x[2] == map[1];
  if (!first && !last)
    fail(Exit::data, file.path(), ": '", options.y, "' is a map of ", map.str(), ", '", options.x, "' a scene of ",
         x.str(), ". the map needs the scene's height and width", matlab_hint(file, options.y));
  if (options.layout == Layout::automatic && first != last) return decided_by = "by the label map", first;
  Shape stored = x;
  const SampleLayout asked = sample_layout(stored, options.layout, file.get_string("/", "layout"), file.path());
  decided_by = asked.decided_by;
  if (asked.channels_first ? !first : !last)
    fail(Exit::data, file.path(), ": '", options.x, "' of ", x.str(), " would be a scene with its channels ",
         asked.channels_first ? "first" : "last", " (", asked.decided_by, "), which the map of ", map.str(),
         " does not fit. set data.layout");
  return asked.channels_first;
}

std::vector<Pixel> labelled(const io::File& file, const io::DatasetInfo& y, std::int64_t height, std::int64_t width) {
  std::vector<Pixel> out;
  const std::int64_t rows = std::max<std::int64_t>(1, (1 << 20) / width);  // at once
  std::vector<std::int64_t> block(std::size_t(std::min(rows, height) * width));
  for (std::int64_t row = 0; row < height; row += rows) {
    const std::int64_t count = std::min(rows, height - row) * width;
    file.read_rows(y.name, row, count / width, DType::i64, block.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = block[std::size_t(i)];
      if (value <= 0) continue;
      if (value > std::int64_t(1) << 30)
        fail(Exit::data, file.path(), ": '", y.name, "' holds ", value, " at ", row + i / width, ", ", i % width,
             ", which is no class number");
      out.push_back({std::uint32_t(row + i / width), std::uint32_t(i % width), std::int32_t(value - 1)});
    }
  }
  if (out.empty())
    fail(Exit::data, file.path(), ": no pixel of '", y.name,
         "' is labelled. classes are numbers from 1 on, 0 and negative ones mark pixels without a label");
  return out;
}

// `one` is what this file alone would be.
void add_scene(ShardIndex& one, Shard& shard, const io::File& file, const DataOptions& options) {
  const io::DatasetInfo y = require_readable_dataset(file, options.y, "data.y");
  const std::int64_t side = options.view.patch;
  const Shape map = shape_of(y.shape, 0);
  const bool integers = y.dtype == DType::u8 || y.dtype == DType::i8 || y.dtype == DType::u16 ||
                        y.dtype == DType::i16 || y.dtype == DType::i32 || y.dtype == DType::i64;
  if (shard.array.rank != 3 || map.rank != 2 || !integers)
    fail(Exit::data, file.path(), ": data.sample = patch needs a scene of height, width and channels as '", options.x,
         "', here ", shard.array.str(), ", and a map of integers as '", options.y, "', here ", map.str(), " ",
         name_of(y.dtype));
  one.x.channels_first = channels_first(shard.array, map, file, options, one.x.layout_decided_by);
  const std::int64_t height = map[0], width = map[1], channels = shard.array[one.x.channels_first ? 0 : 2];
  if (side / 2 >= std::min(height, width) || std::max(height, width) > std::int64_t(UINT32_MAX))
    fail(Exit::data, file.path(), ": patches of ", side, "x", side, " do not fit a scene of ", height, "x", width,
         ". half of one may lie outside of it at most. lower data.patch");
  std::vector<Pixel> pixels = labelled(file, y, height, width);
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
    fail(Exit::data, file.path(), ": '", options.x, "' holds single values. a sample needs at least one dimension");
  const SampleLayout layout = sample_layout(stored, options.layout, file.get_string("/", "layout"), file.path());
  one.sample = one.y.target = layout.sample;
  one.x.channels_first = layout.channels_first, one.x.layout_decided_by = layout.decided_by;
  one.y.labels = false, one.y.dtype = DType::f32;
  shard.rows = std::max<std::int64_t>(0, shard.array[0] - options.view.lead);
}

// Reads all tokens of a file: nobody else has said what the largest is.
std::int64_t largest_token(const ShardIndex& one, const Shard& shard) {
  ShardIndex alone = one;
  alone.shards = {shard};
  HyperslabReader boxes(alone, false, 16u << 20);
  constexpr std::int64_t at_once = 1 << 18;
  std::vector<char> block(std::size_t(at_once) * size_of(one.x.dtype));
  std::int64_t largest = 0;
  const Shape& array = shard.array;
  for (std::int64_t row = 0; row < (array.rank > 1 ? array[0] : 1); ++row)
    for (std::int64_t at = 0; at < array[-1]; at += at_once) {
      Shape first = array, extent = array;
      first[0] = row, extent[0] = 1;
      first[-1] = at, extent[-1] = std::min(at_once, array[-1] - at);
      boxes.read(0, {first, extent}, block.data(), 0);
      if (one.x.big_endian) swap_bytes(block.data(), std::size_t(extent[-1]), size_of(one.x.dtype));
      for (std::int64_t i = 0; i < extent[-1]; ++i) {
        const auto token = std::int64_t(value_at(block.data(), one.x.dtype, i));
        if (token < 0 || token == INT32_MAX)
          fail(Exit::data, shard.path, " holds the token ", token, " (without a sign ", std::uint32_t(token),
               ") at position ", at + i, ". they go from 0 to 2147483646");
        largest = std::max(largest, token);
      }
    }
  return largest;
}

void add_tokens(ShardIndex& one, Shard& shard, const io::File& file, const DataOptions& options) {
  const DType t = one.x.dtype;
  if (shard.array.rank > 2 || (t != DType::u8 && t != DType::u16 && t != DType::i32))
    fail(Exit::data, file.path(), ": data.sample = tokens needs '", options.x,
         "' to be one text, or a text a row, of integers of 8, 16 or 32 bits, here it is ", shard.array.str(), " ",
         name_of(t));
  if (!shard.hdf5_only_reason.empty()) return;                  // refused when a source is made
  const auto known = file.get_int("/", "classes").value_or(0);  // 0: packed, without labels
  one.classes.count = options.view.vocabulary > 0 ? options.view.vocabulary
                      : known > 0                 ? known
                                                  : largest_token(one, shard) + 1;
  one.sample = {options.view.window};
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
  shard.x_offset = x.offset.value_or(0), shard.array = shape_of(x.shape, 0);
  require_bytes(shard, "x", x.offset, std::uint64_t(shard.array.count()) * size_of(x.dtype));
  list_chunks(shard, file, x, &shard.x_chunks);
  ShardIndex one;
  one.x.name = options.x, one.y.name = options.y;
  one.x.dtype = x.dtype, one.x.big_endian = x.big_endian;
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
    return cat(" that another follows ", o.view.lead, " later in its file (data.lead)");
  if (o.view.sample == SampleKind::tokens)
    return cat(": no text is as long as a window of ", o.view.window, " tokens and the next. lower data.window");
  return cat(" left: no pixel is ", o.validation_part ? "held out" : "outside of what is held out and its margin",
             ". change data.holdout, or lower data.patch");
}

}  // namespace millrace
