#include "millrace/data/read/source.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/decode/convert_values.hpp"
#include "data/index/concatenated.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

std::size_t shard_of(const ShardIndex& index, std::int64_t id) {
  MR_CHECK(id >= 0 && id < index.rows, "sample {} of {}", id, index.rows);
  return index.shards.shard_with(id);
}

void sort_by_id(std::span<const std::int64_t> ids, std::vector<std::size_t>& order) {
  order.resize(ids.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
}

std::size_t raise_open_file_limit(std::size_t wanted) {
  constexpr rlim_t others = 128;  // files that are not of data sets: sockets, libraries, logs
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
  if (index.y.parts.empty()) return size_of(index.y.dtype) * std::size_t(index.y.target.count());
  std::size_t sum = 0;
  for (const ConcatenatedPart& part : index.y.parts) sum += size_of(part.dtype) * std::size_t(part.count);
  return sum;
}

std::size_t y_batch_bytes(const ShardIndex& index) {
  return (index.y.labels ? sizeof(std::int32_t) : sizeof(float)) * std::size_t(index.y.target.count());
}

void convert_targets(const TargetPart& part, const Shard& shard, std::int64_t rows, void* y_stored, void* y) {
  const std::int64_t count = rows * part.count;
  if (part.big_endian) swap_bytes(y_stored, std::size_t(count), size_of(part.dtype));
  try {
    if (part.labels)
      labels_to_int32(y_stored, part.dtype, count, part.ignored, static_cast<std::int32_t*>(y));
    else
      targets_to_float(y_stored, part.dtype, count, static_cast<float*>(y));
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", shard.path, e.what());
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

class SequentialReadQueue : public ReadQueue {
 public:
  explicit SequentialReadQueue(Source& source) : source_(source) {}
  void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
    ids_ = ids;
    x_ = x;
    y_ = y;
  }
  bool can_submit() const override { return ids_.empty(); }
  void finish() override { source_.read(std::exchange(ids_, {}), x_, y_); }

 private:
  Source& source_;
  std::span<const std::int64_t> ids_;
  void *x_ = nullptr, *y_ = nullptr;
};

}  // namespace

std::unique_ptr<ReadQueue> Source::make_read_queue(std::span<char>) {
  return std::make_unique<SequentialReadQueue>(*this);
}

}  // namespace millrace
