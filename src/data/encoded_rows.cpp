#include "encoded_rows.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "chunked_rows.hpp"
#include "image_views.hpp"
#include "millrace/base/error.hpp"
#include "millrace/io/heap.hpp"
#include "read_error.hpp"
#include "shard_files.hpp"

namespace millrace {
namespace {

using Rows = std::vector<EncodedRow>;

Descriptor open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(Exit::data, "cannot open ", path, " (", std::strerror(errno), ")");
  return {fd, false};
}

Rows from_offsets(const io::File& file, const io::DatasetInfo& x, const Shard& shard) {
  const std::string name = offsets_name(x.name), place = cat(shard.path, ": '", name, "'");
  const io::DatasetInfo info = file.info(name);
  if (!info.refusal.empty() || info.shape.size() != 1 || info.shape[0] < 1 || info.dtype != DType::i64)
    fail(Exit::data, place, " is not int64 [images + 1], which says where each image in '", x.name, "' begins",
         info.refusal.empty() ? "" : " (" + info.refusal + ")");
  std::vector<std::int64_t> offsets(std::size_t(info.shape[0]));
  file.read_rows(name, 0, info.shape[0], DType::i64, offsets.data());
  Rows rows(offsets.size() - 1);
  if (rows.empty()) return rows;
  if (!x.offset)
    fail(Exit::data, shard.path, ": '", x.name, "' holds encoded images, but is not contiguous. `millrace pack ",
         "--encoded` writes it so; or create it without chunks");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t from = offsets[i], to = offsets[i + 1];
    if (from < 0 || to < from || to > x.shape[0] || to - from > std::numeric_limits<std::int32_t>::max())
      fail(Exit::data, place, ": image ", i, " is from byte ", from, " to ", to, " of ", x.shape[0],
           ". write it again: offsets ascend from 0");
    rows[i] = {*x.offset + std::uint64_t(from), std::uint32_t(to - from), 0};
  }
  if (*x.offset + std::uint64_t(offsets.back()) > shard.file_bytes)
    fail(Exit::data, shard.path, " is truncated (", x.name, " ends at byte ", *x.offset + std::uint64_t(offsets.back()),
         ", the file at ", shard.file_bytes, "). copy or pack it again");
  return rows;
}

Rows from_heap(const io::File& file, const io::DatasetInfo& x, const Shard& shard) {
  const std::string place = shard.path + ":" + x.name;
  if (x.shape.size() != 1) fail(Exit::data, place, " has ", x.shape.size(), " dimensions. encoded images are [images]");
  Rows rows(std::size_t(x.shape[0]));
  std::string stored(rows.size() * io::heap_reference_bytes, '\0');
  if (rows.empty()) return rows;
  const Descriptor fd = open_file(shard.path);
  if (x.chunked) {
    const io::ChunkedLayout layout = file.chunked_layout(x.name);
    if (const std::string why = io::cannot_decode(layout.filters); !why.empty())
      fail(Exit::data, place, " cannot be read (", why, ")");
    std::vector<ChunkedRows::Row> places;
    for (std::size_t i = 0; i < rows.size(); ++i)
      places.push_back({std::int64_t(i), stored.data() + i * io::heap_reference_bytes});
    ChunkedRows(16u << 20).read({fd, 0, layout, place}, places, false);
  } else if (x.offset) {
    read_fully(fd, shard, *x.offset, stored.data(), stored.size(), 0, io::heap_reference_bytes);
  } else {
    fail(Exit::data, place, " was never written, or is neither contiguous nor chunked. write it with h5py's defaults");
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const io::HeapReference r = io::heap_reference(stored.data() + i * io::heap_reference_bytes);
    const std::uint64_t at = r.collection + *x.heap_base;
    if (r.count > 0 && (r.object == 0 || at < r.collection || at > shard.file_bytes || r.count > shard.file_bytes - at))
      fail(Exit::data, place, ": image ", i, " would be at byte ", at, ", the file ends at ", shard.file_bytes,
           ". it is truncated or damaged: copy it again");
    if (r.count > 0) rows[i] = {at, r.count, r.object};
  }
  return rows;
}

}  // namespace

std::shared_ptr<const Rows> list_encoded(const io::File& file, const std::string& x, const Shard& shard) {
  if (!file.has(x)) return nullptr;
  const io::DatasetInfo info = file.info(x);
  if (info.heap_base) return std::make_shared<const Rows>(from_heap(file, info, shard));
  if (info.dtype == DType::u8 && info.refusal.empty() && info.shape.size() == 1 && file.has(offsets_name(x)))
    return std::make_shared<const Rows>(from_offsets(file, info, shard));
  return nullptr;
}

io::DatasetInfo as_decoded(const ShardIndex& index, const Shard& shard, const DataOptions& options) {
  if (options.layout == Layout::channels_first || options.layout == Layout::no_channels)
    fail(Exit::config, "data.layout: ", shard.path,
         " holds encoded images, which are decoded with their channels last");
  io::DatasetInfo x;
  x.name = options.x, x.dtype = DType::u8;
  x.shape = {std::int64_t(shard.x_encoded->size()), index.sample[0], index.sample[1], 3};
  if (!index.shards.empty() || shard.x_encoded->empty()) return x;
  Image size;
  if (options.decode.resize == 0 && options.decode.crop == 0) {
    const Descriptor fd = open_file(shard.path);
    std::string content;
    read_encoded(fd, shard, shard.first, content);
    decode_image(content, place_of(shard, shard.first), size_alone, size);
  }
  const Fit fit = fit_of(options.decode.resize, options.decode.crop, "", "", size.whole_height, size.whole_width);
  x.shape[1] = fit.height, x.shape[2] = fit.width;
  return x;
}

void read_encoded(int fd, const Shard& shard, std::int64_t id, std::string& out) {
  const EncodedRow& row = (*shard.x_encoded)[std::size_t(id - shard.first)];
  if (row.object == 0) {
    out.resize(row.bytes);
    return read_fully(fd, shard, row.offset, out.data(), out.size(), id, std::max<std::size_t>(1, row.bytes));
  }
  const auto read = [&](std::uint64_t offset, char* to, std::size_t bytes) {
    read_fully(fd, shard, offset, to, bytes, id, bytes);
  };
  try {
    io::read_heap_object(read, {row.offset, row.object, row.bytes}, out);
  } catch (const ReadError&) {  // it may pass
    throw;
  } catch (const Error& e) {
    fail(e.code(), place_of(shard, id), " cannot be read (", e.what(), "). copy the file again");
  }
}

std::string place_of(const Shard& shard, std::int64_t id) {
  return cat("image ", id - shard.first, " of ", shard.path, " (sample ", id, ")");
}

}  // namespace millrace
