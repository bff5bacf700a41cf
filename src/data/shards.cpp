#include "millrace/data/shards.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <vector>

#include "encoded_rows.hpp"
#include "importers.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/class_names.hpp"
#include "millrace/data/source.hpp"
#include "millrace/io/hdf5.hpp"
#include "raw_rows.hpp"
#include "shards_text.hpp"
#include "synthetic.hpp"

namespace millrace {
namespace {

io::DatasetInfo readable(const io::File& file, const std::string& name, const char* key) {
  if (!file.has(name)) {
    std::string all;
    for (const auto& n : file.datasets()) all += (all.empty() ? "" : ", ") + n;
    fail(Exit::data, file.path(), " has no data set '", name, "' (", key, "). it holds: ", all.empty() ? "none" : all);
  }
  io::DatasetInfo info = file.info(name);
  if (!info.refusal.empty()) fail(Exit::data, file.path(), ": '", name, "' cannot be read (", info.refusal, ")");
  if (info.shape.empty() || info.shape.size() > Shape::max_rank - 1)
    fail(Exit::data, file.path(), ": '", name, "' has ", info.shape.size(), " dimensions. rows and up to ",
         Shape::max_rank - 2, " more are read");
  return info;
}

void require_bytes(const Shard& shard, const char* what, const std::optional<std::uint64_t>& offset,
                   std::uint64_t bytes) {
  if (offset && *offset + bytes > shard.file_bytes)
    fail(Exit::data, shard.path, " is truncated (", what, " ends at byte ", *offset + bytes, ", the file at ",
         shard.file_bytes, "). copy or pack it again");
}

std::int64_t chunk_count(const io::DatasetInfo& info) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < info.shape.size(); ++d) count *= (info.shape[d] + info.chunk[d] - 1) / info.chunk[d];
  return count;
}

// The chunks of a data set that is read without HDF5; or why it is not, into shard.hdf5_only.
void list_chunks(Shard& shard, const io::File& file, const io::DatasetInfo& info,
                 std::shared_ptr<const io::ChunkedLayout>* chunks) {
  const auto only = [&](const std::string& why) {
    if (shard.hdf5_only.empty()) shard.hdf5_only = cat(info.name, ": ", why);
  };
  if (info.offset) return;
  if (!info.chunked) return only("it is neither contiguous nor chunked");
  if (const auto count = chunk_count(info); count > io::chunks_listed_quickly())
    return only(cat(count, " chunks, whose addresses this HDF5 takes too long to list"));
  auto layout = std::make_shared<io::ChunkedLayout>(file.chunked_layout(info.name));
  if (const std::string why = io::cannot_decode(layout->filters); !why.empty()) return only(why);
  for (const io::ChunkInfo& c : layout->chunks)
    if (c.offset + c.bytes > shard.file_bytes)
      fail(Exit::data, shard.path, " is truncated (a chunk of ", info.name, " ends at byte ", c.offset + c.bytes,
           ", the file at ", shard.file_bytes, "). copy or pack it again");
  *chunks = std::move(layout);
}

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

// The files' mean and deviation are of value * scale under the files' own scale; the user may ask for another one.
void read_statistics(ShardIndex& out, const io::File& file, const DataOptions& options) {
  const double usual = out.x_dtype == DType::u8 && out.sample.rank >= 2 ? 1 / 255.0 : 1;
  const auto stored = file.get_numbers("/", "scale");
  const double own = stored && stored->size() == 1 && (*stored)[0] > 0 ? (*stored)[0] : usual;
  out.scale = options.scale > 0 ? options.scale : own;
  out.mean = file.get_numbers(options.x, "mean").value_or(std::vector<double>{});
  out.std = file.get_numbers(options.x, "std").value_or(std::vector<double>{});
  if (out.mean.size() != std::size_t(out.sample[-1]) || out.std.size() != out.mean.size())
    out.mean.clear(), out.std.clear();
  if (out.scale != own)
    for (std::size_t c = 0; c < out.mean.size(); ++c) out.mean[c] *= out.scale / own, out.std[c] *= out.scale / own;
}

void add_file(ShardIndex& out, const std::string& path, const DataOptions& options) {
  const io::File file = io::File::open(path);
  Shard shard;
  shard.path = path, shard.first = out.rows;
  shard.file_bytes = std::filesystem::file_size(path);
  shard.x_encoded = list_encoded(file, options.x, shard);
  const io::DatasetInfo x = shard.x_encoded ? as_decoded(out, shard, options) : readable(file, options.x, "data.x"),
                        y = readable(file, options.y, "data.y");
  if (x.shape[0] != y.shape[0])
    fail(Exit::data, path, ": '", options.x, "' has ", x.shape[0], " rows, '", options.y, "' ", y.shape[0],
         ". they must be equal", matlab_hint(file, options.y));
  if (x.shape[0] == 0) return;
  const Shape stored = shape_of(x.shape, 1);
  if (stored.rank == 0)
    fail(Exit::data, path, ": '", options.x, "' holds single values. a sample needs at least one dimension");
  if (x.dtype == DType::i64)
    fail(Exit::data, path, ": '", options.x, "' holds samples of 64-bit integers, which are not read in place. ",
         "`millrace pack` makes them int32, or store them in a smaller or floating type");
  const SampleLayout layout = sample_layout(stored, shard.x_encoded ? Layout::channels_last : options.layout,
                                            file.get_string("/", "layout"), path);
  const Shape sample = layout.sample;
  const bool channels_first = layout.channels_first;
  Shape target = shape_of(y.shape, 1);
  const bool labels = holds_labels(y.dtype, target, cat(path, ": '", options.y, "'"));
  if (labels) target = Shape{};
  if (!labels && target.rank == 0) target = Shape{1};

  shard.rows = x.shape[0];
  shard.x_offset = x.offset.value_or(0), shard.y_offset = y.offset.value_or(0);
  require_bytes(shard, "x", x.offset, std::uint64_t(shard.rows) * std::uint64_t(stored.count()) * size_of(x.dtype));
  require_bytes(shard, "y", y.offset, std::uint64_t(shard.rows) * std::uint64_t(target.count()) * size_of(y.dtype));
  if (!shard.x_encoded) list_chunks(shard, file, x, &shard.x_chunks);
  list_chunks(shard, file, y, &shard.y_chunks);

  if (out.shards.empty()) {
    out.sample = sample, out.x_dtype = x.dtype, out.channels_first = channels_first;
    out.layout_told_by = shard.x_encoded ? "as decoded" : layout.told_by;
    out.x_big_endian = x.big_endian, out.y_big_endian = y.big_endian;
    out.labels = labels, out.y_dtype = y.dtype, out.target = target;
    read_statistics(out, file, options);
  } else if (sample != out.sample || x.dtype != out.x_dtype || channels_first != out.channels_first ||
             labels != out.labels || y.dtype != out.y_dtype || target != out.target ||
             x.big_endian != out.x_big_endian || y.big_endian != out.y_big_endian ||
             bool(shard.x_encoded) != out.encoded()) {
    const auto encoded = [](const auto& rows) { return rows ? " encoded" : ""; };
    const auto first = [](bool is) { return is ? " (channels first)" : ""; };
    fail(Exit::data, path, " holds ", sample.str(), first(channels_first), " ", name_of(x.dtype),
         encoded(shard.x_encoded), " samples with ", target.str(), " ", name_of(y.dtype), " targets, ",
         out.shards.front().path, " ", out.sample.str(), first(out.channels_first), " ", name_of(out.x_dtype),
         encoded(out.shards.front().x_encoded), " with ", out.target.str(), " ", name_of(out.y_dtype),
         ". all files of a data set must agree");
  }
  const auto names = class_names_of(file.get_string("/", "class_names").value_or(""));
  if (const std::string other = differing_class(names, out.class_names); !other.empty())
    fail(Exit::data, "in ", path, " ", other, " in ", out.shards.front().path,
         ". pack them together, or from folders and tables with the same classes");
  if (out.class_names.empty()) out.class_names = names;
  const auto known_classes = file.get_int("/", "classes");
  if (labels)
    out.classes = std::max(out.classes, known_classes ? *known_classes : largest_label(file, options.y, y) + 1);
  out.rows += shard.rows;
  out.shards.push_back(shard);
}

// HDF5 marks a file as open for writing only in its newest formats. Otherwise a file that is half there and was written
// to just now tells as much.
std::string being_written(const std::string& path, const std::string& problem) {
  constexpr std::int64_t just_now = 120;  // seconds
  bool half = false;
  for (const char* words : {"truncated", "is empty (0 bytes)", "no signature", "marked open for writing", "cut off"})
    half = half || problem.find(words) != std::string::npos;
  std::error_code none;
  const auto written = std::filesystem::last_write_time(path, none);
  if (!half || none) return "";
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(std::filesystem::file_time_type::clock::now() - written).count();
  if (age < 0 || age > just_now) return "";
  return cat("; it was written to ", age, " s ago: if a program is still at it, wait for its end");
}

ShardIndex read_index(const DataOptions& options) {
  ShardIndex out;
  out.x_name = options.x, out.y_name = options.y, out.decode = options.decode;
  for (const std::string& pattern : options.paths) {
    const auto files = expand_glob(pattern);
    if (files.empty()) fail(Exit::data, "'", pattern, "' matches no file. see the path, or pack the data first");
    for (const std::string& path : files) try {
        add_file(out, path, options);
      } catch (const Error& e) {
        fail(e.code(), e.what(), being_written(path, e.what()));
      }
  }
  if (out.rows == 0) fail(Exit::data, "the data set has no rows");
  std::string manifest = cat(out.sample.str(), name_of(out.x_dtype), out.channels_first ? " channels first" : "",
                             out.encoded() ? " encoded" : "");
  for (const Shard& s : out.shards)
    manifest += cat("\n", std::filesystem::path(s.path).filename().string(), " ", s.rows, " ", s.file_bytes);
  out.manifest_crc = crc32(manifest.data(), manifest.size());
  return out;
}

}  // namespace

bool own_reads(const ShardIndex& d) {
  return std::all_of(d.shards.begin(), d.shards.end(), [](const Shard& s) { return s.hdf5_only.empty(); });
}

std::string describe_storage(const ShardIndex& d) {
  for (const Shard& s : d.shards)
    if (!s.hdf5_only.empty()) return cat(s.path, ":", s.hdf5_only);
  if (d.encoded()) return "pread of JPEG and PNG, decoded by the loader's threads";
  for (const Shard& s : d.shards) {
    if (!s.x_chunks && !s.y_chunks) continue;
    const io::ChunkedLayout& l = s.x_chunks ? *s.x_chunks : *s.y_chunks;
    std::string chunk, filters;
    for (const auto extent : l.chunk) chunk += cat(chunk.empty() ? "" : "x", extent);
    for (const auto& f : l.filters) filters += cat(filters.empty() ? " (" : ", ", f.name);
    return cat("pread of chunks of ", chunk, filters, filters.empty() ? "" : ")", ", decoded by the loader's threads");
  }
  return "pread of contiguous data";
}

ShardIndex index_shards(World& world, const DataOptions& options) {
  if (options.paths.size() == 1 && options.paths[0].rfind("synthetic:", 0) == 0)
    return synthetic_index(options.paths[0]);
  std::string text, problem;
  Exit code = Exit::data;
  if (world.rank() == 0) try {
      text = to_text(read_index(options));
    } catch (const Error& e) {
      problem = e.what(), code = e.code();
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(code, problem);
  return from_text(world.broadcast_string(text));
}

void measure_statistics(World& world, ShardIndex& index, std::int64_t max_rows, const FaultOptions& faults) {
  constexpr std::int64_t most_decoded = 2000;  // by one rank, while the others wait
  const std::size_t channels = std::size_t(index.sample[-1]);
  const std::int64_t rows = std::min({index.rows, max_rows, index.encoded() ? most_decoded : max_rows}),
                     values = index.sample.count();
  std::vector<double> sums(2 * channels + 1, 0.0);  // the last: samples
  std::string problem;
  if (world.rank() == 0) try {
      // Evenly spread rows; the same on any number of ranks because one rank reads them.
      const auto source = make_source(world, index, own_reads(index) ? Reader::direct : Reader::automatic, faults);
      const auto reads = source->reads({});
      std::vector<char> x(index.sample_bytes());
      std::vector<float> y(std::size_t(index.target.count()));
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t id = r * index.rows / rows;
        reads->begin({&id, 1}, x.data(), y.data());
        reads->finish();
        if (reads->skipped() > 0) continue;
        sums.back() += 1;
        add_to_sums(x.data(), index.x_dtype, values, std::int64_t(channels), index.channels_first, index.scale,
                    sums.data());
      }
      if (sums.back() == 0) fail(Exit::data, "no sample of ", index.shards.front().path, " can be read");
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
  world.broadcast(sums.data(), sums.size() * sizeof(double), 0);
  const double count = sums.back() * double(values) / double(channels);
  index.mean.resize(channels), index.std.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    index.mean[c] = sums[c] / count;
    index.std[c] = std::sqrt(std::max(1e-12, sums[channels + c] / count - index.mean[c] * index.mean[c]));
  }
}

}  // namespace millrace
