#include "millrace/data/source.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "raw_rows.hpp"
#include "sources.hpp"
#include "synthetic.hpp"

namespace millrace {

std::size_t shard_of(const ShardIndex& index, std::int64_t id) {
  MR_CHECK(id >= 0 && id < index.rows, "sample ", id, " of ", index.rows);
  const auto after = std::upper_bound(index.shards.begin(), index.shards.end(), id,
                                      [](std::int64_t i, const Shard& s) { return i < s.first; });
  return std::size_t(after - index.shards.begin()) - 1;
}

std::size_t allow_open_files(std::size_t wanted) {
  constexpr rlim_t others = 128;  // sockets, libraries, logs
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::min<std::size_t>(wanted, 256);
  if (limit.rlim_cur < wanted + others) {
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + others);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return std::min<std::size_t>(wanted, limit.rlim_cur > 2 * others ? limit.rlim_cur - others : limit.rlim_cur / 2);
}

std::size_t y_stored_bytes(const ShardIndex& index) {
  return size_of(index.y_dtype) * std::size_t(index.target.count());
}

std::size_t y_step_bytes(const ShardIndex& index) {
  return index.labels ? sizeof(std::int32_t) : sizeof(float) * std::size_t(index.target.count());
}

void convert_targets(const ShardIndex& index, const Shard& shard, std::size_t rows, void* y_stored, void* y) {
  const std::int64_t count = std::int64_t(rows) * index.target.count();
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

std::unique_ptr<Source> make_source(World& world, const ShardIndex& index, Reader reader) {
  if (index.synthetic) return make_synthetic_source(index);
  if (reader == Reader::mpio) return make_hdf5_source(world, index, true);
  if (own_reads(index)) return make_direct_source(index);
  if (reader == Reader::direct)
    fail(Exit::config, "data.reader = direct cannot read ", describe_storage(index),
         ". use auto or mpio, or `millrace pack` the data");
  return make_hdf5_source(world, index, false);
}

}  // namespace millrace
