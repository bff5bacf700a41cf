#include "millrace/data/scan/index_shards.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "data/index/index_serialization.hpp"
#include "data/read/synthetic.hpp"
#include "data/scan/scan_shards.hpp"
#include "millrace/base/error.hpp"
#include "millrace/comm/node_memory.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

// The first chunked data set of a shard; null if all of them are contiguous.
const io::ChunkedLayout* first_chunked(const Shard& s) {
  if (s.x_chunks) return s.x_chunks.get();
  for (const DatasetLocation& e : s.extra_x)
    if (e.chunks) return e.chunks.get();
  if (s.y_chunks) return s.y_chunks.get();
  for (const DatasetLocation& e : s.extra_y)
    if (e.chunks) return e.chunks.get();
  return nullptr;
}

}  // namespace

bool readable_without_hdf5(const ShardIndex& index) {
  return std::all_of(index.shards.begin(), index.shards.end(),
                     [](const Shard& s) { return s.hdf5_only_reason.empty(); });
}

std::string describe_storage(const ShardIndex& index) {
  for (const Shard& s : index.shards)
    if (!s.hdf5_only_reason.empty()) return fmt::format("{}:{}", s.path, s.hdf5_only_reason);
  if (index.encoded()) return "pread of JPEG and PNG, decoded by the loader's threads";
  for (const Shard& s : index.shards) {
    const io::ChunkedLayout* layout = first_chunked(s);
    if (!layout) continue;
    std::string chunk, filters;
    for (const auto extent : layout->chunk) chunk += fmt::format("{}{}", chunk.empty() ? "" : "x", extent);
    for (const auto& f : layout->filters) filters += fmt::format("{}{}", filters.empty() ? " (" : ", ", f.name);
    return fmt::format("pread of chunks of {}{}{}, decoded by the loader's threads", chunk, filters,
                       filters.empty() ? "" : ")");
  }
  return "pread of contiguous data";
}

ShardIndex index_shards(World& world, const DataOptions& options) {
  options.view.check();
  const bool synthetic = options.paths.size() == 1 && options.paths[0].rfind("synthetic:", 0) == 0;
  if (options.ignore_label != ignore_label_from_files && (synthetic || options.view.sample != SampleKind::rows))
    fail(Exit::config,
         "data.ignore_label: only files with a row of y for each row of x hold such labels. remove the key");
  if (synthetic) {
    if (options.view.sample != SampleKind::rows)
      fail(Exit::config, "data.sample: synthetic data consists of rows and has no array to cut samples from");
    return synthetic_index(options.paths[0]);
  }
  const bool scans = world.rank() == 0;
  ShardIndex found;
  std::string problem;
  Exit code = Exit::data;
  if (scans) try {
      const watchdog::WaitScope waits(watchdog::Wait::file);
      found = scan_shards(options);
    } catch (const Error& e) {
      problem = e.what();
      code = e.code();
    } catch (const std::exception& e) {
      problem = e.what();
    }
  world.agree(code, problem);
  std::string chunk_tables;
  const std::string text = world.broadcast_string(scans ? serialize_index(found, &chunk_tables) : "");
  const NodeMemory plain = node_copy(world, scans ? found.shards.plain_bytes() : "");
  const NodeMemory chunks = node_copy(world, chunk_tables);
  ShardIndex out = deserialize_index(text, plain.data, plain.bytes, chunks.data);
  out.view = options.view;
  return out;
}

}  // namespace millrace
