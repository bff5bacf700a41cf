#include "millrace/data/source.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "joined.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "raw_rows.hpp"
#include "sources.hpp"
#include "synthetic.hpp"

namespace millrace {

std::size_t shard_of(const ShardIndex& index, std::int64_t id) {
  MR_CHECK(id >= 0 && id < index.rows, "sample ", id, " of ", index.rows);
  return index.shards.holding(id);
}

std::size_t allow_open_files(std::size_t wanted) {
  constexpr rlim_t others = 128;  // sockets, libraries, logs
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::min<std::size_t>(wanted, 256);
  if (limit.rlim_cur < 2 * wanted + others) {
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * wanted + others);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return std::min<std::size_t>(wanted,
                               (limit.rlim_cur > 2 * others ? limit.rlim_cur - others : limit.rlim_cur / 2) / 2);
}

std::size_t y_stored_bytes(const ShardIndex& index) {
  return size_of(index.y_dtype) * std::size_t(index.target.count());
}

std::size_t y_step_bytes(const ShardIndex& index) {
  return index.labels ? sizeof(std::int32_t) : sizeof(float) * std::size_t(index.target.count());
}

void convert_targets(const ShardIndex& index, const Shard& shard, std::int64_t count, void* y_stored, void* y) {
  if (index.y_big_endian) swap_bytes(y_stored, std::size_t(count), size_of(index.y_dtype));
  try {
    if (index.labels)
      labels_to_int32(y_stored, index.y_dtype, count, static_cast<std::int32_t*>(y));
    else
      targets_to_float(y_stored, index.y_dtype, count, static_cast<float*>(y));
  } catch (const Error& e) {
    fail(e.code(), shard.path, ": ", e.what());
  }
}

const char* name_of(Reader reader) {
  return reader == Reader::direct  ? "direct"
         : reader == Reader::mmap  ? "mmap"
         : reader == Reader::uring ? "uring"
         : reader == Reader::mpio  ? "mpio"
                                   : "mpio_collective";
}

namespace {

class OneByOne : public Reads {
 public:
  explicit OneByOne(Source& source) : source_(source) {}
  void begin(std::span<const std::int64_t> ids, void* x, void* y) override { ids_ = ids, x_ = x, y_ = y; }
  bool room() const override { return ids_.empty(); }
  void finish() override { source_.read(std::exchange(ids_, {}), x_, y_); }

 private:
  Source& source_;
  std::span<const std::int64_t> ids_;
  void *x_ = nullptr, *y_ = nullptr;
};

// Said once, whatever the number of data sets.
void say_no_uring(const std::string& why) {
  static std::once_flag said;
  std::call_once(said, [&] { log::warn("data.reader = uring: no io_uring, " + why + ". threads read instead"); });
}

}  // namespace

std::string refusal(Reader reader, const ReaderFacts& f, const ShardIndex& index) {
  const std::string asked = cat("data.reader = ", name_of(reader));
  if (!f.hdf5_only.empty())
    return cat(asked, " cannot read ", f.hdf5_only, ". use auto or mpio, or `millrace pack` the data");
  if (reader == Reader::direct) return "";
  if (!f.contiguous)
    return cat(asked, " reads contiguous data only, here is ", describe_storage(index),
               ". use auto or direct, or `millrace pack` the data");
  if (reader == Reader::uring && !f.no_direct_io.empty())
    return cat(asked, ": ", index.shards.front().path, " cannot be read by O_DIRECT (", f.no_direct_io,
               "). use auto, direct or mmap");
  if (reader == Reader::mmap && !f.no_map.empty())
    return cat(asked, ": ", index.shards.front().path, " cannot be mapped (", f.no_map, "). use auto or direct");
  return "";
}

std::unique_ptr<Reads> Source::reads(std::span<char>) { return std::make_unique<OneByOne>(*this); }

namespace {

// automatic: through the HDF5 library, without MPI-IO.
std::unique_ptr<Source> open_engine(World& world, const ShardIndex& index, Reader reader, const std::string& why,
                                    const ChunkOptions& chunks) {
  if (!index.x_parts.empty()) {
    std::vector<std::unique_ptr<Source>> parts;
    ChunkOptions each = chunks;
    each.cache_bytes /= index.x_parts.size();
    for (std::size_t p = 0; p < index.x_parts.size(); ++p)
      parts.push_back(open_engine(world, part_of(index, p), reader, p ? "" : why, each));
    ShardIndex whole = index;
    if (through_mpi(reader) || reader == Reader::automatic) whole.x_big_endian = false;  // the library converts
    return make_joined_source(whole, std::move(parts));
  }
  if (reader == Reader::mmap) return make_mmap_source(index, why);
  if (reader == Reader::uring) return make_uring_source(index, why, make_async_reads);
  if (reader == Reader::direct) return make_direct_source(index, why, chunks);
  return make_hdf5_source(world, index, reader, why);
}

// What HDF5 1.10 reads wrongly by all ranks together: chunks whose filter was left out for them, or never written.
void refuse_for_collective(const ShardIndex& index) {
  for (const Shard& shard : index.shards)
    for (const auto& layout : {shard.x_chunks, shard.y_chunks}) {
      if (!layout) continue;
      for (std::size_t c = 0; c < layout->chunks.size(); ++c)
        if (layout->chunks[c].filter_mask != 0 || layout->chunks[c].bytes == 0)
          fail(Exit::config, "data.reader = mpio_collective: ", shard.path,
               " has chunks that were stored without their filter or not at all, which HDF5 reads wrongly by all ranks "
               "together. use auto, direct or mpio");
    }
}

std::unique_ptr<Source> make_engine(World& world, const ShardIndex& index, Reader reader, const ChunkOptions& chunks) {
  if (index.encoded()) {
    if (reader != Reader::automatic && reader != Reader::direct)
      fail(Exit::config, "data.reader = ", name_of(reader), " reads samples of one size, ", index.shards[0].path,
           " holds encoded images. use auto or direct");
    if (!own_reads(index))
      fail(Exit::data, "the labels of encoded images: ", describe_storage(index), ". write y anew");
    return make_encoded_source(index);
  }
  if (index.cut()) return make_view_source(index, reader, chunks);
  if (reader == Reader::mpio_collective) refuse_for_collective(index);
  if (through_mpi(reader)) return open_engine(world, index, reader, "", chunks);
  const ReaderFacts facts = reader_facts(index);
  std::string why;
  if (reader == Reader::automatic) {
    const ReaderChoice choice = choose_reader(facts);
    reader = choice.reader, why = " (auto: " + choice.why + ")";
    if (reader == Reader::mpio) return open_engine(world, index, Reader::automatic, why, chunks);
  } else {
    if (const std::string problem = refusal(reader, facts, index); !problem.empty()) fail(Exit::config, problem);
    if (reader == Reader::uring && !facts.no_uring.empty()) say_no_uring(facts.no_uring);
  }
  return open_engine(world, index, reader, why, chunks);
}

}  // namespace

std::unique_ptr<Source> make_source(World& world, const ShardIndex& index, Reader reader, const FaultOptions& faults,
                                    const ChunkOptions& chunks, const StagingOptions& staging) {
  if (staging.budget > 0 && !staging.wanted())
    fail(Exit::config, "data.cache_budget does nothing without data.cache. set that to memory or a path, or leave it ",
         "away");
  if (index.synthetic) return make_synthetic_source(index);
  if (staging.wanted()) {
    if (through_mpi(reader))
      fail(Exit::config, "data.cache = ", staging.where, ": data.reader = ", name_of(reader),
           " keeps its files open on all ranks together. use auto, direct, mmap or uring");
    auto stager = std::make_unique<Stager>(world, index, staging);
    ShardIndex near = index;
    near.copies = stager->copies();
    auto engine = make_guarded_source(make_engine(world, near, reader, chunks), near, faults);
    return make_staged_source(std::move(engine), near, std::move(stager));
  }
  return make_guarded_source(make_engine(world, index, reader, chunks), index, faults);
}

}  // namespace millrace
