#include "millrace/data/open/open_source.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "data/cache/local_cache.hpp"
#include "data/decode/convert_values.hpp"
#include "data/index/concatenated.hpp"
#include "data/open/wrappers.hpp"
#include "data/read/synthetic.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

namespace {

// Warns only once, whatever the number of data sets.
void warn_without_uring(const std::string& why) {
  static std::once_flag warned;
  std::call_once(warned, [&] { log::warn("data.reader = uring: no io_uring, " + why + ". threads read instead"); });
}

// Reader::automatic means the HDF5 library without MPI-IO. why: the end of the first engine's describe().
std::unique_ptr<Source> open_engine(World& world, const ShardIndex& index, Reader reader, const std::string& why,
                                    const ChunkOptions& chunks) {
  if (!index.x.parts.empty()) {
    std::vector<std::unique_ptr<Source>> parts;
    ChunkOptions each = chunks;
    each.cache_bytes /= index.x.parts.size();
    for (std::size_t p = 0; p < index.x.parts.size(); ++p)
      parts.push_back(open_engine(world, component_index(index, p), reader, p ? "" : why, each));
    ShardIndex all = index;
    if (uses_mpi_io(reader) || reader == Reader::automatic) all.x.big_endian = false;  // the library converts
    return make_concatenated_source(all, std::move(parts));
  }
  if (reader == Reader::mmap) return make_mmap_source(index, why);
  if (reader == Reader::uring) return make_uring_source(index, why, make_async_reads);
  if (reader == Reader::direct) return make_direct_source(index, why, chunks);
  return make_hdf5_source(world, index, reader, why);
}

// HDF5 1.10 reads two kinds of chunks wrongly in collective mode: those stored without their filter, and those that
// were never written.
void refuse_for_collective(const ShardIndex& index) {
  for (const Shard& shard : index.shards)
    for (const auto& layout : {shard.x_chunks, shard.y_chunks}) {
      if (!layout) continue;
      for (std::size_t c = 0; c < layout->chunks.size(); ++c)
        if (layout->chunks[c].filter_mask != 0 || layout->chunks[c].bytes == 0)
          fail(Exit::config,
               "data.reader = mpio_collective: {} has chunks that were stored without their filter or not at all, "
               "which HDF5 reads wrongly in collective mode. use auto, direct or mpio",
               shard.path);
    }
}

std::unique_ptr<Source> make_engine(World&, const ShardIndex&, Reader, const ChunkOptions&);

std::unique_ptr<Source> make_engine_of_inputs(World& world, const ShardIndex& index, Reader reader,
                                              const ChunkOptions& chunks) {
  std::vector<std::unique_ptr<Source>> parts;
  ChunkOptions each = chunks;
  each.cache_bytes /= index.inputs.size();
  for (std::size_t i = 0; i < index.inputs.size(); ++i) {
    ShardIndex part = index.inputs[i];
    part.component = {i, index.inputs.size(), index.sample_bytes()};
    part.copies = index.copies;
    parts.push_back(make_engine(world, part, reader, each));
  }
  return make_concatenated_source(index, std::move(parts));
}

std::unique_ptr<Source> make_engine(World& world, const ShardIndex& index, Reader reader, const ChunkOptions& chunks) {
  if (!index.inputs.empty()) return make_engine_of_inputs(world, index, reader, chunks);
  if (index.encoded()) {
    if (reader != Reader::automatic && reader != Reader::direct)
      fail(Exit::config, "data.reader = {} reads samples of one size, but {} holds encoded images. use auto or direct",
           name_of(reader), index.shards[0].path);
    if (!readable_without_hdf5(index))
      fail(Exit::data,
           "cannot read the labels of encoded images without the HDF5 library: {}. write y again, contiguous or in "
           "chunks with gzip",
           describe_storage(index));
    return make_encoded_source(index);
  }
  if (index.samples_are_views()) return make_view_source(index, reader, chunks);
  if (reader == Reader::mpio_collective) refuse_for_collective(index);
  if (uses_mpi_io(reader)) return open_engine(world, index, reader, "", chunks);
  const ReaderFacts facts = reader_facts(index);
  std::string why;
  if (reader == Reader::automatic) {
    const ReaderChoice choice = choose_reader(facts);
    reader = choice.reader;
    why = " (auto: " + choice.why + ")";
    if (reader == Reader::mpio) return open_engine(world, index, Reader::automatic, why, chunks);
  } else {
    if (const std::string problem = unsupported_reason(reader, facts, index); !problem.empty())
      fail(Exit::config, "{}", problem);
    if (reader == Reader::uring && !facts.no_uring.empty()) warn_without_uring(facts.no_uring);
  }
  return open_engine(world, index, reader, why, chunks);
}

}  // namespace

std::unique_ptr<Source> make_source(World& world, const ShardIndex& index, Reader reader, const FaultOptions& faults,
                                    const ChunkOptions& chunks, const LocalCacheOptions& caching) {
  if (caching.budget > 0 && !caching.wanted())
    fail(Exit::config,
         "data.cache_budget does nothing without data.cache. set data.cache to memory or a path, or remove "
         "data.cache_budget");
  if (index.synthetic()) return make_synthetic_source(index);
  if (caching.wanted()) {
    if (uses_mpi_io(reader))
      fail(Exit::config,
           "data.cache = {}: data.reader = {} opens its files collectively. use auto, direct, mmap or uring",
           caching.where, name_of(reader));
    auto cache = std::make_unique<LocalCache>(world, index, caching);
    ShardIndex cached = index;
    cached.copies = cache->copies();
    auto engine = make_retrying_source(make_engine(world, cached, reader, chunks), cached, faults);
    return make_cached_source(std::move(engine), cached, std::move(cache));
  }
  return make_retrying_source(make_engine(world, index, reader, chunks), index, faults);
}

}  // namespace millrace
