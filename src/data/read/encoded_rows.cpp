#include "millrace/data/read/encoded_rows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "data/index/read_error.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/decode/chunked_reader.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/read/shard_files.hpp"
#include "millrace/io/global_heap.hpp"

namespace millrace {
namespace {

using Rows = std::vector<EncodedRow>;

std::string place(const Shard& shard, const EncodedRows& rows) { return shard.path + ":" + rows.name; }

EncodedRow row_between(const Shard& shard, const EncodedRows& rows, std::int64_t image, std::int64_t from,
                       std::int64_t to) {
  if (from < 0 || to < from || std::uint64_t(to) > rows.bytes || to - from > std::numeric_limits<std::int32_t>::max())
    fail(Exit::data, "{}: '{}': image {} spans bytes {} to {} of {}. write it again: offsets must ascend from 0",
         shard.path, offsets_name(rows.name), image, from, to, rows.bytes);
  return {rows.base + std::uint64_t(from), std::uint32_t(to - from), 0};
}

EncodedRow referenced_row(const Shard& shard, const EncodedRows& rows, std::int64_t image, const char* stored) {
  const io::GlobalHeapId r = io::parse_global_heap_id(stored);
  const std::uint64_t at = r.collection + rows.base;
  if (r.count > 0 && (r.object == 0 || at < r.collection || at > shard.file_bytes || r.count > shard.file_bytes - at))
    fail(Exit::data,
         "{}: image {} would be at byte {}, but the file ends at {}. the file is truncated or damaged: copy it again",
         place(shard, rows), image, at, shard.file_bytes);
  return r.count > 0 ? EncodedRow{at, r.count, r.object} : EncodedRow{};
}

EncodedRows find_by_offsets(const io::File& file, const io::DatasetInfo& x, const Shard& shard) {
  const std::string name = offsets_name(x.name), place = fmt::format("{}: '{}'", shard.path, name);
  const io::DatasetInfo info = file.info(name);
  if (!info.unsupported_reason.empty() || info.shape.size() != 1 || info.shape[0] < 1 || info.dtype != DType::i64)
    fail(Exit::data, "{} must be int64 [images + 1], the offsets of the images in '{}'{}", place, x.name,
         info.unsupported_reason.empty() ? "" : " (" + info.unsupported_reason + ")");
  EncodedRows rows{EncodedRows::Locator::offsets, info.shape[0] - 1, 0, 0, std::uint64_t(x.shape[0]), x.name, nullptr};
  if (rows.rows == 0) return rows;
  if (!x.offset)
    fail(Exit::data,
         "{}: '{}' holds encoded images, but is not contiguous. `millrace pack --encoded` writes it that way; or "
         "create it without chunks",
         shard.path, x.name);
  rows.base = *x.offset;
  if (rows.base + rows.bytes > shard.file_bytes)
    fail(Exit::data, "{} is truncated ({} ends at byte {}, the file at {}). copy or pack it again", shard.path, x.name,
         rows.base + rows.bytes, shard.file_bytes);
  if (info.offset && !info.big_endian) {
    rows.at = *info.offset;
    return rows;
  }
  std::vector<std::int64_t> offsets(std::size_t(info.shape[0]));
  file.read_rows(name, 0, info.shape[0], DType::i64, offsets.data());
  auto list = std::make_shared<Rows>();
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
    list->push_back(row_between(shard, rows, std::int64_t(i), offsets[i], offsets[i + 1]));
  rows.locator = EncodedRows::Locator::list;
  rows.list = list;
  return rows;
}

EncodedRows find_by_references(const io::File& file, const io::DatasetInfo& x, const Shard& shard) {
  EncodedRows rows{EncodedRows::Locator::references, 0, 0, *x.global_heap_base, 0, x.name, nullptr};
  const std::string place = millrace::place(shard, rows);
  if (x.shape.size() != 1) fail(Exit::data, "{} has {} dimensions. encoded images are [images]", place, x.shape.size());
  rows.rows = x.shape[0];
  if (x.offset) {
    rows.at = *x.offset;
    return rows;
  }
  if (rows.rows == 0) return rows;
  if (!x.chunked)
    fail(Exit::data, "{} was never written, or is neither contiguous nor chunked. write it with h5py's defaults",
         place);
  const io::ChunkedLayout layout = file.chunked_layout(x.name);
  if (const std::string why = io::unsupported_filter_reason(layout.filters); !why.empty())
    fail(Exit::data, "{} cannot be read ({})", place, why);
  std::string stored(std::size_t(rows.rows) * io::global_heap_id_bytes, '\0');
  std::vector<ChunkedReader::Row> places;
  for (std::int64_t i = 0; i < rows.rows; ++i)
    places.push_back({i, stored.data() + std::size_t(i) * io::global_heap_id_bytes});
  const FileDescriptor fd = open_file(shard.path);
  ChunkedReader(16u << 20).read({fd, 0, layout, place}, places, false);
  auto list = std::make_shared<Rows>();
  for (std::int64_t i = 0; i < rows.rows; ++i)
    list->push_back(referenced_row(shard, rows, i, places[std::size_t(i)].to));
  rows.locator = EncodedRows::Locator::list;
  rows.list = list;
  return rows;
}

}  // namespace

std::shared_ptr<const EncodedRows> find_encoded(const io::File& file, const std::string& x, const Shard& shard) {
  if (!file.has(x)) return nullptr;
  const io::DatasetInfo info = file.info(x);
  const bool blob = info.dtype == DType::u8 && info.unsupported_reason.empty() && info.shape.size() == 1;
  if (!info.global_heap_base && !(blob && file.has(offsets_name(x)))) return nullptr;
  Shard found = shard;
  found.x_encoded = std::make_shared<const EncodedRows>(info.global_heap_base ? find_by_references(file, info, shard)
                                                                              : find_by_offsets(file, info, shard));
  if (const EncodedRows& rows = *found.x_encoded; rows.locator != EncodedRows::Locator::list && rows.rows > 0) {
    const FileDescriptor fd =
        open_file(shard.path);  // the first and last image show whether the file is truncated or its offsets are wrong
    for (const std::int64_t image : {std::int64_t(0), rows.rows - 1}) encoded_row(fd, found, found.first + image);
  }
  return found.x_encoded;
}

EncodedRow encoded_row(int fd, const Shard& shard, std::int64_t id) {
  const EncodedRows& rows = *shard.x_encoded;
  const std::int64_t image = id - shard.first;
  if (rows.locator == EncodedRows::Locator::list) return (*rows.list)[std::size_t(image)];
  char stored[16];
  static_assert(sizeof stored == io::global_heap_id_bytes);
  const bool offsets = rows.locator == EncodedRows::Locator::offsets;
  const std::size_t step = offsets ? sizeof(std::int64_t) : sizeof stored;
  read_fully(fd, shard, {rows.at + std::uint64_t(image) * step, sizeof stored, id, sizeof stored}, stored);
  if (!offsets) return referenced_row(shard, rows, image, stored);
  std::int64_t ends[2];
  std::memcpy(ends, stored, sizeof ends);
  return row_between(shard, rows, image, ends[0], ends[1]);
}

io::DatasetInfo as_decoded(const ShardIndex& index, const Shard& shard, const DataOptions& options) {
  if (options.layout == Layout::channels_first || options.layout == Layout::no_channels)
    fail(Exit::config, "data.layout: {} holds encoded images, which are decoded with their channels last", shard.path);
  io::DatasetInfo x;
  x.name = options.x;
  x.dtype = DType::u8;
  x.shape = {shard.x_encoded->rows, index.sample[0], index.sample[1], 3};
  if (!index.shards.empty() || shard.x_encoded->rows == 0) return x;
  Image size;
  if (options.decode.resize == 0 && options.decode.crop == 0) {
    const FileDescriptor fd = open_file(shard.path);
    std::string content;
    read_encoded(fd, shard, shard.first, content);
    decode_image(content, place_of(shard, shard.first), size_only, size);
  }
  const ResizeCrop fit =
      resize_crop_for(options.decode.resize, options.decode.crop, "", "", size.whole_height, size.whole_width);
  x.shape[1] = fit.height;
  x.shape[2] = fit.width;
  return x;
}

void read_encoded(int fd, const Shard& shard, std::int64_t id, std::string& out) {
  const EncodedRow row = encoded_row(fd, shard, id);
  if (row.object == 0) {
    out.resize(row.bytes);
    return read_fully(fd, shard, {row.offset, out.size(), id, std::max<std::size_t>(1, row.bytes)}, out.data());
  }
  const auto read = [&](std::uint64_t offset, char* to, std::size_t bytes) {
    read_fully(fd, shard, {offset, bytes, id, bytes}, to);
  };
  try {
    io::read_global_heap_object(read, {row.offset, row.object, row.bytes}, out);
  } catch (const ReadError&) {  // may be transient: keep its type for the retries
    throw;
  } catch (const Error& e) {
    fail(e.code(), "{} cannot be read ({}). copy the file again", place_of(shard, id), e.what());
  }
}

std::string place_of(const Shard& shard, std::int64_t id) {
  return fmt::format("image {} of {} (sample {})", id - shard.first, shard.path, id);
}

}  // namespace millrace
