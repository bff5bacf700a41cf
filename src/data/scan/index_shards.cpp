#include "millrace/data/scan/index_shards.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "data/index/concatenated.hpp"
#include "data/index/index_serialization.hpp"
#include "data/read/synthetic.hpp"
#include "data/scan/scan_shards.hpp"
#include "data/scan/shard_index.hpp"
#include "data/scan/shard_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/comm/node_memory.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/read/encoded_rows.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

io::DatasetInfo require_readable_dataset(const io::File& file, const std::string& name, const char* key,
                                         bool uint32_as_int32) {
  if (!file.has(name)) {
    std::string all;
    for (const auto& n : file.datasets()) all += (all.empty() ? "" : ", ") + n;
    fail(Exit::data, file.path(), " has no data set '", name, "' (", key, "). it holds: ", all.empty() ? "none" : all);
  }
  io::DatasetInfo info = file.info(name);
  if (!info.external_link_file.empty())
    fail(Exit::data, file.path(), ": '", name, "' is a link into ", info.external_link_file,
         ". name that file, or `millrace pack` this one");
  if (!info.unsupported_reason.empty() && !(uint32_as_int32 && info.uint32_as_int32))
    fail(Exit::data, file.path(), ": '", name, "' cannot be read (", info.unsupported_reason, ")");
  if (info.shape.empty() || info.shape.size() > Shape::max_rank - 1)
    fail(Exit::data, file.path(), ": '", name, "' has ", info.shape.size(), " dimensions. rows and up to ",
         Shape::max_rank - 2, " more are read");
  return info;
}

std::string matlab_hint(const io::File& file, const std::string& dataset) {
  if (!file.get_string(dataset, "MATLAB_class")) return "";
  return ". MATLAB's extents lie reversed in the file: its last dimension is the row, so save y as 1 x N, not N x 1";
}

void record_file_status(Shard& shard) {
  struct stat status {};
  if (::stat(shard.path.str().c_str(), &status) != 0)
    fail(Exit::data, "cannot open ", shard.path, " (", std::strerror(errno), ")");
  shard.file_bytes = std::uint64_t(status.st_size), shard.mtime_seconds = std::uint32_t(status.st_mtim.tv_sec);
}

void require_bytes(const Shard& shard, const char* what, const std::optional<std::uint64_t>& offset,
                   std::uint64_t bytes) {
  if (offset && *offset + bytes > shard.file_bytes)
    fail(Exit::data, shard.path, " is truncated (", what, " ends at byte ", *offset + bytes, ", the file at ",
         shard.file_bytes, "). copy or pack it again");
}

namespace {

std::int64_t chunk_count(const io::DatasetInfo& info) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < info.shape.size(); ++d) count *= (info.shape[d] + info.chunk[d] - 1) / info.chunk[d];
  return count;
}

}  // namespace

void list_chunks(Shard& shard, const io::File& file, const io::DatasetInfo& info,
                 std::shared_ptr<const io::ChunkedLayout>* chunks) {
  const auto only = [&](const std::string& why) {
    if (shard.hdf5_only_reason.empty()) shard.hdf5_only_reason = cat(info.name, ": ", why);
  };
  if (info.offset) return;
  if (!info.chunked) return only("it is neither contiguous nor chunked");
  if (const auto count = chunk_count(info); count > io::fast_chunk_listing_limit())
    return only(cat(count, " chunks, whose addresses this HDF5 takes too long to list"));
  auto layout = std::make_shared<io::ChunkedLayout>(file.chunked_layout(info.name));
  if (const std::string why = io::unsupported_filter_reason(layout->filters); !why.empty()) return only(why);
  for (const io::ChunkInfo& c : layout->chunks)
    if (c.offset + c.bytes > shard.file_bytes)
      fail(Exit::data, shard.path, " is truncated (a chunk of ", info.name, " ends at byte ", c.offset + c.bytes,
           ", the file at ", shard.file_bytes, "). copy or pack it again");
  *chunks = std::move(layout);
}

namespace {

// Largest label by reading all of them: files that others wrote carry no attribute.
std::int64_t largest_label(const io::File& file, const std::string& name, const io::DatasetInfo& info) {
  std::int64_t largest = -1;
  std::vector<std::int64_t> block(1 << 16);
  for (std::int64_t row = 0; row < info.shape[0]; row += std::int64_t(block.size())) {
    const std::int64_t n = std::min<std::int64_t>(std::int64_t(block.size()), info.shape[0] - row);
    file.read_rows(name, row, n, DType::i64, block.data());
    largest = std::max(largest, *std::max_element(block.begin(), block.begin() + n));
  }
  return largest;
}

}  // namespace

void refuse_int64(const std::string& path, const std::string& name, DType dtype) {
  if (dtype == DType::i64)
    fail(Exit::data, path, ": '", name, "' holds samples of 64-bit integers, which are not read in place. ",
         "`millrace pack` makes them int32, or store them in a smaller or floating type");
}

ShardIndex scan_file(const std::string& path, const DataOptions& options, const ShardIndex& before) {
  const io::File file = io::File::open(path);
  ShardIndex out;
  out.x.name = options.x, out.y.name = options.y, out.decode = options.decode;
  Shard shard;
  shard.path = path;
  record_file_status(shard);
  const auto x_names = names_of(options.x, "data.x"), y_names = names_of(options.y, "data.y");
  if (x_names.size() == 1) shard.x_encoded = find_encoded(file, options.x, shard);
  std::vector<io::DatasetInfo> xs, ys;
  for (const auto& name : x_names)
    xs.push_back(shard.x_encoded ? as_decoded(before, shard, options) : require_readable_dataset(file, name, "data.x"));
  for (const auto& name : y_names) ys.push_back(require_readable_dataset(file, name, "data.y"));
  const io::DatasetInfo &x = xs[0], &y = ys[0];
  if (x.shape[0] != y.shape[0])
    fail(Exit::data, path, ": '", x_names[0], "' has ", x.shape[0], " rows, '", y_names[0], "' ", y.shape[0],
         ". they must be equal", matlab_hint(file, y_names[0]));
  if (x.shape[0] == 0) return out;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].shape.size() < 2)
      fail(Exit::data, path, ": '", x_names[i], "' holds single values. a sample needs at least one dimension");
    refuse_int64(path, x_names[i], xs[i].dtype);
  }
  const auto [layout, x_parts] = concatenate_samples(xs, shard.x_encoded ? Layout::channels_last : options.layout,
                                                     file.get_string("/", "layout"), path);
  const Shape sample = layout.sample;
  const bool channels_first = layout.channels_first;
  std::vector<ConcatenatedPart> y_parts;
  if (ys.size() > 1) y_parts = concatenate_targets(ys, path);
  Shape target = shape_of(y.shape, 1);
  const bool labels = y_parts.empty() && holds_labels(y.dtype, target, cat(path, ": '", options.y, "'"));
  if (labels) target = Shape{};
  if (!labels && target.rank == 0) target = Shape{1};
  if (!y_parts.empty()) {
    target = Shape{0};
    for (const ConcatenatedPart& part : y_parts) target[0] += part.count;
  }

  shard.rows = x.shape[0];
  const auto lies = [&](const char* what, const io::DatasetInfo& info) {
    std::uint64_t bytes = size_of(info.dtype);
    for (const std::int64_t extent : info.shape) bytes *= std::uint64_t(extent);
    require_bytes(shard, what, info.offset, bytes);
    DatasetLocation extent{info.offset.value_or(0), nullptr};
    if (what[0] != 'x' || !shard.x_encoded) list_chunks(shard, file, info, &extent.chunks);
    return extent;
  };
  for (const auto& info : xs) shard.extra_x.push_back(lies("x", info));
  for (const auto& info : ys) shard.extra_y.push_back(lies("y", info));
  shard.x_offset = shard.extra_x[0].offset, shard.x_chunks = shard.extra_x[0].chunks;
  shard.y_offset = shard.extra_y[0].offset, shard.y_chunks = shard.extra_y[0].chunks;
  shard.extra_x.erase(shard.extra_x.begin()), shard.extra_y.erase(shard.extra_y.begin());

  out.sample = sample, out.x.dtype = x.dtype, out.x.channels_first = channels_first;
  out.x.layout_decided_by = shard.x_encoded ? "as decoded" : layout.decided_by;
  out.x.big_endian = x.big_endian, out.y.big_endian = y.big_endian;
  out.y.labels = labels, out.y.dtype = y.dtype, out.y.target = target;
  out.x.parts = x_parts, out.y.parts = y_parts;
  read_values(out, file, x_names, options);
  out.classes.names = parse_class_names(file.get_string("/", "class_names").value_or(""));
  const auto known_classes = file.get_int("/", "classes");
  if (labels) out.classes.count = known_classes ? *known_classes : largest_label(file, y_names[0], y) + 1;
  out.rows = shard.rows;
  out.shards.push_back(shard);
  return out;
}

void append_shard(ShardIndex& out, const ShardIndex& one, Shard shard) {
  const std::string path = shard.path;
  const bool is_encoded = bool(shard.x_encoded);
  if (out.shards.empty()) {
    out = one;
    out.shards = {}, out.rows = 0;
  } else if (one.sample != out.sample || one.x.dtype != out.x.dtype || one.x.channels_first != out.x.channels_first ||
             one.y.labels != out.y.labels || one.y.dtype != out.y.dtype || one.y.target != out.y.target ||
             one.x.parts != out.x.parts || one.y.parts != out.y.parts || one.x.big_endian != out.x.big_endian ||
             one.y.big_endian != out.y.big_endian || is_encoded != out.encoded()) {
    const auto encoded = [](bool is) { return is ? " encoded" : ""; };
    const auto first = [](bool is) { return is ? " (channels first)" : ""; };
    fail(Exit::data, path, " holds ", one.sample.str(), first(one.x.channels_first), " ", name_of(one.x.dtype),
         encoded(is_encoded), " samples with ", one.y.target.str(), " ", name_of(one.y.dtype), " targets, ",
         out.shards.front().path, " ", out.sample.str(), first(out.x.channels_first), " ", name_of(out.x.dtype),
         encoded(out.encoded()), " with ", out.y.target.str(), " ", name_of(out.y.dtype),
         ". all files of a data set must agree");
  }
  require_same_values(out, one, path);
  if (const std::string other = first_class_mismatch(one.classes.names, out.classes.names); !other.empty())
    fail(Exit::data, "in ", path, " ", other, " in ", out.shards.front().path,
         ". pack them together, or from folders and tables with the same classes");
  if (out.classes.names.empty()) out.classes.names = one.classes.names;
  out.classes.count = std::max(out.classes.count, one.classes.count);
  shard.first = out.rows;
  out.rows += shard.rows;
  out.shards.push_back(shard);
}

bool readable_without_hdf5(const ShardIndex& d) {
  return std::all_of(d.shards.begin(), d.shards.end(), [](const Shard& s) { return s.hdf5_only_reason.empty(); });
}

std::string describe_storage(const ShardIndex& d) {
  for (const Shard& s : d.shards)
    if (!s.hdf5_only_reason.empty()) return cat(s.path, ":", s.hdf5_only_reason);
  if (d.encoded()) return "pread of JPEG and PNG, decoded by the loader's threads";
  for (const Shard& s : d.shards) {
    const io::ChunkedLayout* chunked = s.x_chunks.get();
    for (const auto* more : {&s.extra_x, &s.extra_y}) {
      for (const DatasetLocation& e : *more)
        if (!chunked) chunked = e.chunks.get();
      if (!chunked) chunked = s.y_chunks.get();
    }
    if (!chunked) continue;
    const io::ChunkedLayout& l = *chunked;
    std::string chunk, filters;
    for (const auto extent : l.chunk) chunk += cat(chunk.empty() ? "" : "x", extent);
    for (const auto& f : l.filters) filters += cat(filters.empty() ? " (" : ", ", f.name);
    return cat("pread of chunks of ", chunk, filters, filters.empty() ? "" : ")", ", decoded by the loader's threads");
  }
  return "pread of contiguous data";
}

ShardIndex index_shards(World& world, const DataOptions& options) {
  options.view.check();
  if (options.paths.size() == 1 && options.paths[0].rfind("synthetic:", 0) == 0) {
    if (options.view.sample != SampleKind::rows)
      fail(Exit::config, "data.sample: synthetic data has rows, nothing is cut out of it");
    return synthetic_index(options.paths[0]);
  }
  ShardIndex found;
  std::string problem;
  Exit code = Exit::data;
  if (world.rank() == 0) try {
      found = scan_shards(options);
    } catch (const Error& e) {
      problem = e.what(), code = e.code();
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(code, problem);
  const bool reads = world.rank() == 0;
  std::string tables;
  const std::string text = world.broadcast_string(reads ? serialize_index(found, &tables) : "");
  const NodeMemory plain = node_copy(world, reads ? found.shards.plain_bytes() : "");
  const NodeMemory of_chunks = node_copy(world, tables);
  ShardIndex out = deserialize_index(text, plain.data, plain.bytes, of_chunks.data);
  out.view = options.view;
  return out;
}

}  // namespace millrace
