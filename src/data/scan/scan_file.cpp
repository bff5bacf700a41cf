#include "data/scan/scan_file.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "data/index/concatenated.hpp"
#include "data/index/index_serialization.hpp"
#include "data/scan/shard_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/read/encoded_rows.hpp"

namespace millrace {

io::DatasetInfo require_readable_dataset(const io::File& file, const std::string& name, const char* key,
                                         bool uint32_as_int32) {
  if (!file.has(name)) {
    std::string all;
    for (const auto& n : file.datasets()) all += (all.empty() ? "" : ", ") + n;
    fail(Exit::data, "{} has no data set '{}' ({}). it holds: {}", file.path(), name, key, all.empty() ? "none" : all);
  }
  io::DatasetInfo info = file.info(name);
  if (!info.external_link_file.empty())
    fail(Exit::data, "{}: '{}' is a link into {}. name that file, or `millrace pack` this one", file.path(), name,
         info.external_link_file);
  if (!info.unsupported_reason.empty() && !(uint32_as_int32 && info.uint32_as_int32))
    fail(Exit::data, "{}: '{}' cannot be read ({})", file.path(), name, info.unsupported_reason);
  if (info.shape.empty() || info.shape.size() > Shape::max_rank - 1)
    fail(Exit::data, "{}: '{}' has {} dimensions. rows and up to {} more are read", file.path(), name,
         info.shape.size(), Shape::max_rank - 2);
  if (std::count(info.shape.begin() + 1, info.shape.end(), 0) > 0)
    fail(Exit::data, "{}: the rows of '{}' have no values (an extent is 0). write it again", file.path(), name);
  return info;
}

std::string matlab_hint(const io::File& file, const std::string& dataset) {
  if (!file.get_string(dataset, "MATLAB_class")) return "";
  return ". MATLAB stores dimensions in reverse order: its last dimension is the row, so save y as 1 x N, not N x 1";
}

void record_file_status(Shard& shard) {
  struct stat status {};
  if (::stat(shard.path.str().c_str(), &status) != 0)
    fail(Exit::data, "cannot open {} ({})", shard.path, std::strerror(errno));
  shard.file_bytes = std::uint64_t(status.st_size);
  shard.mtime_seconds = std::uint32_t(status.st_mtim.tv_sec);
}

void require_bytes(const Shard& shard, const char* name, const std::optional<std::uint64_t>& offset,
                   std::uint64_t bytes) {
  if (offset && *offset + bytes > shard.file_bytes)
    fail(Exit::data, "{} is truncated ({} ends at byte {}, the file at {}). copy or pack it again", shard.path, name,
         *offset + bytes, shard.file_bytes);
}

void refuse_int64(const std::string& path, const std::string& name, DType dtype) {
  if (dtype == DType::i64)
    fail(Exit::data,
         "{}: '{}' holds samples of 64-bit integers, which are not read in place. `millrace pack` makes them int32, or "
         "store them in a smaller or floating type",
         path, name);
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
  const auto needs_hdf5 = [&](const std::string& reason) {
    if (shard.hdf5_only_reason.empty()) shard.hdf5_only_reason = fmt::format("{}: {}", info.name, reason);
  };
  if (info.offset) return;
  if (!info.chunked) return needs_hdf5("it is neither contiguous nor chunked");
  if (const auto count = chunk_count(info); count > io::fast_chunk_listing_limit())
    return needs_hdf5(fmt::format("{} chunks, whose addresses this HDF5 takes too long to list", count));
  auto layout = std::make_shared<io::ChunkedLayout>(file.chunked_layout(info.name));
  if (const std::string reason = io::unsupported_filter_reason(layout->filters); !reason.empty())
    return needs_hdf5(reason);
  for (const io::ChunkInfo& c : layout->chunks)
    if (c.offset + c.bytes > shard.file_bytes)
      fail(Exit::data, "{} is truncated (a chunk of {} ends at byte {}, the file at {}). copy or pack it again",
           shard.path, info.name, c.offset + c.bytes, shard.file_bytes);
  *chunks = std::move(layout);
}

namespace {

// Reads all labels. Only files of other programs need it: they have no attribute "classes".
std::int64_t largest_label(const io::File& file, const io::DatasetInfo& y, std::int64_t ignored) {
  const std::int64_t labels = shape_of(y.shape, 1).count();  // of a row
  const std::int64_t rows = std::max<std::int64_t>(1, (1 << 16) / labels);
  std::int64_t largest = -1;
  std::vector<std::int64_t> block(std::size_t(rows * labels));
  for (std::int64_t row = 0; row < y.shape[0]; row += rows) {
    const std::int64_t n = std::min(rows, y.shape[0] - row);
    file.read_rows(y.name, row, n, DType::i64, block.data());
    for (std::int64_t i = 0; i < n * labels; ++i)
      if (const std::int64_t label = block[std::size_t(i)]; label != ignored) largest = std::max(largest, label);
  }
  return largest;
}

class FileScan {
 public:
  FileScan(const std::string& path, const DataOptions& options)
      : path_(path), options_(options), file_(io::File::open(path)) {}

  ShardIndex run(const ShardIndex& previous) {
    out_.x.name = options_.x;
    out_.y.name = options_.y;
    out_.decode = options_.decode;
    find_datasets(previous);
    if (x_[0].shape[0] == 0) return out_;
    set_samples();
    set_targets();
    locate_data();
    read_values(out_, file_, x_names_, options_);
    set_classes();
    out_.rows = shard_.rows;
    out_.shards.push_back(shard_);
    return out_;
  }

 private:
  void find_datasets(const ShardIndex& previous) {
    shard_.path = path_;
    record_file_status(shard_);
    x_names_ = names_of(options_.x, "data.x");
    if (!options_.y.empty()) y_names_ = names_of(options_.y, "data.y");
    if (x_names_.size() == 1) shard_.x_encoded = find_encoded(file_, options_.x, shard_);
    for (const auto& name : x_names_)
      x_.push_back(shard_.x_encoded ? as_decoded(previous, shard_, options_)
                                    : require_readable_dataset(file_, name, "data.x"));
    for (const auto& name : y_names_) y_.push_back(require_readable_dataset(file_, name, "data.y"));
    if (!y_.empty() && x_[0].shape[0] != y_[0].shape[0])
      fail(Exit::data, "{}: '{}' has {} rows, '{}' {}. they must be equal{}", path_, x_names_[0], x_[0].shape[0],
           y_names_[0], y_[0].shape[0], matlab_hint(file_, y_names_[0]));
    shard_.rows = x_[0].shape[0];
  }

  void set_samples() {
    for (std::size_t i = 0; i < x_.size(); ++i) {
      if (x_[i].shape.size() < 2)
        fail(Exit::data, "{}: '{}' holds single values. a sample needs at least one dimension", path_, x_names_[i]);
      refuse_int64(path_, x_names_[i], x_[i].dtype);
    }
    const Layout requested = shard_.x_encoded ? Layout::channels_last : options_.layout;
    const TargetRow row = y_.empty() ? TargetRow{DType::f32, {}} : TargetRow{y_[0].dtype, shape_of(y_[0].shape, 1)};
    const auto [layout, parts] = concatenate_samples(x_, requested, file_.get_string("/", "layout"), path_, row);
    out_.sample = layout.sample;
    out_.x.dtype = x_[0].dtype;
    out_.x.big_endian = x_[0].big_endian;
    out_.x.channels_first = layout.channels_first;
    out_.x.layout_decided_by = shard_.x_encoded ? "as decoded" : layout.decided_by;
    out_.x.parts = parts;
  }

  void set_targets() {
    TargetStorage& y = out_.y;
    if (y_.empty()) {
      y.labels = false;
      y.target = Shape{0};
      return;
    }
    y.dtype = y_[0].dtype;
    y.big_endian = y_[0].big_endian;
    if (y_.size() > 1) {
      y.parts = concatenate_targets(y_, path_);
      if (y.has_label_parts()) y.ignore_label = ignored_label();
      for (std::size_t p = 0; p < y_.size(); ++p)
        if (y.parts[p].labels) y.parts[p].classes = largest_label(file_, y_[p], y.ignore_label) + 1;
      y.labels = false;
      y.target = Shape{0};
      for (const ConcatenatedPart& part : y.parts) y.target[0] += part.count;
      return;
    }
    y.target = shape_of(y_[0].shape, 1);
    y.labels = holds_labels({y.dtype, y.target}, out_.sample, fmt::format("{}: '{}'", path_, options_.y));
    if (y.labels) y.target = label_positions(y.target, out_.sample);
    if (!y.labels && y.target.rank == 0) y.target = Shape{1};
  }

  DatasetLocation locate(const char* name, const io::DatasetInfo& info, bool encoded) {
    std::uint64_t bytes = size_of(info.dtype);
    for (const std::int64_t extent : info.shape) bytes *= std::uint64_t(extent);
    require_bytes(shard_, name, info.offset, bytes);
    DatasetLocation location{info.offset.value_or(0), nullptr};
    if (!encoded) list_chunks(shard_, file_, info, &location.chunks);
    return location;
  }

  void locate_data() {
    for (const auto& info : x_) shard_.extra_x.push_back(locate("x", info, bool(shard_.x_encoded)));
    for (const auto& info : y_) shard_.extra_y.push_back(locate("y", info, false));
    shard_.x_offset = shard_.extra_x[0].offset;
    shard_.x_chunks = shard_.extra_x[0].chunks;
    shard_.extra_x.erase(shard_.extra_x.begin());
    if (y_.empty()) return;
    shard_.y_offset = shard_.extra_y[0].offset;
    shard_.y_chunks = shard_.extra_y[0].chunks;
    shard_.extra_y.erase(shard_.extra_y.begin());
  }

  std::int64_t ignored_label() const {
    if (options_.ignore_label != ignore_label_from_files) return options_.ignore_label;
    return file_.get_int("/", "ignore_label").value_or(-1);
  }

  void set_classes() {
    out_.classes.names = parse_class_names(file_.get_string("/", "class_names").value_or(""));
    const auto stored = file_.get_int("/", "classes");
    if (!y_.empty() && !out_.y.labels && !out_.y.has_label_parts() && options_.ignore_label != ignore_label_from_files)
      fail(Exit::config, "data.ignore_label: {} of {} holds targets, not labels. remove the key", options_.y, path_);
    if (!out_.y.labels) return;
    const std::int64_t ignored = out_.y.ignore_label = ignored_label();
    out_.classes.count = stored ? *stored : largest_label(file_, y_[0], ignored) + 1;
  }

  const std::string& path_;
  const DataOptions& options_;
  const io::File file_;
  std::vector<std::string> x_names_, y_names_;
  std::vector<io::DatasetInfo> x_, y_;
  Shard shard_;
  ShardIndex out_;
};

}  // namespace

ShardIndex scan_file(const std::string& path, const DataOptions& options, const ShardIndex& previous) {
  return FileScan(path, options).run(previous);
}

}  // namespace millrace
