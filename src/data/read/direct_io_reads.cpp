// A worker cuts what it was asked for into pieces, a piece being neighbouring samples or a part of a large one. Where
// offset, length and place are multiples of what O_DIRECT asks for, a piece goes straight to its place; else the blocks
// around it go to a buffer of the worker's, and the piece is copied.
#include "data/read/direct_io_reads.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "data/read/queue_depth_tuner.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t units_at_once = 128;              // reads begun and not finished, of one worker
constexpr std::size_t most = InFlightReads::count - 1;  // pieces under way, of one worker: 64
constexpr std::size_t page = 4096;
constexpr int most_interruptions = 100;  // of a piece, one after the other

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class DirectIoReadQueue : public ReadQueue {
 public:
  DirectIoReadQueue(DirectIoFiles& files, std::span<char> slots, const MakeAsyncReads& make)
      : files_(files),
        block_((std::clamp<std::size_t>(files.x_bytes, 128u << 10, 256u << 10) + 3 * page - 1) / page * page),
        units_(units_at_once),
        alignments_(files.index.shards.size(), DirectAlignment{0, 0}) {
    memory_.reset(static_cast<char*>(std::aligned_alloc(page, most * block_)));
    MR_CHECK(memory_);
    const std::span<char> parts[] = {{memory_.get(), most * block_}, slots};
    async_ = make({parts, slots.empty() ? 1u : 2u});
    // Joined data sets share the places that are watched.
    const std::size_t share = std::max<std::size_t>(1, most / files.index.component.count);
    pieces_.resize(std::min(share, async_->capacity()));
    first_place_ = 1 + files.index.component.number % most * share % most;
    free_.reserve(pieces_.size());
    for (std::size_t p = pieces_.size(); p-- > 0;) free_.push_back(std::uint32_t(p));
    depth_ = std::make_unique<QueueDepthTuner>(int(pieces_.size()));
  }
  ~DirectIoReadQueue() override {
    cut_ = begun_;  // nothing more is started
    try {
      while (under_way() > 0) wait();
    } catch (...) {
      std::terminate();  // the kernel would go on writing into memory that goes
    }
  }

  void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
    MR_CHECK(begun_ - finished_ < units_.size());
    Unit& unit = units_[begun_ % units_.size()];
    unit = {ids, static_cast<char*>(x), static_cast<char*>(y), 0, nullptr, 0};
    ++begun_, rows_left_ += ids.size();
    try {
      issue();
      async_->start();
      // While the disk is at work.
      for (std::size_t i = 0; i < ids.size();) {
        const std::size_t s = shard_of(files_.index, ids[i]),
                          run = run_length(files_.index, files_.index.shards.range(s), ids, i);
        files_.targets.read(s, ids[i], run, unit.y + i * files_.targets.bytes());
        i += run;
      }
    } catch (...) {
      unit.fail(ids.size(), std::current_exception());
    }
  }

  // As long as less than a queue's worth will wait to be started while the oldest unit is finished.
  bool can_submit() const override {
    if (begun_ == finished_) return true;
    const std::size_t in_oldest = cut_ == finished_ ? units_[cut_ % units_.size()].ids.size() - row_ : 0;
    const std::size_t each = (files_.x_bytes + block_ - 1) / block_;
    return begun_ - finished_ < units_.size() && (rows_left_ - in_oldest) * each < std::size_t(depth_->depth());
  }

  void finish() override {
    MR_CHECK(finished_ < begun_);
    Unit& unit = units_[finished_ % units_.size()];
    while (unit.pieces > 0 || cut_ == finished_) {
      issue();
      if (under_way() > 0) wait();
    }
    ++finished_;
    if (unit.failure) std::rethrow_exception(std::exchange(unit.failure, nullptr));
    if (files_.index.x.big_endian)
      swap_bytes(unit.x, unit.ids.size() * std::size_t(files_.index.sample.count()), size_of(files_.index.x.dtype));
  }

 private:
  struct Unit {
    std::span<const std::int64_t> ids;
    char *x, *y;
    std::size_t pieces;  // under way
    std::exception_ptr failure;
    std::size_t failed_at;  // position in ids

    void fail(std::size_t at, std::exception_ptr e) {  // that of the first sample is told, whichever came first
      if (!failure || at < failed_at) failure = std::move(e), failed_at = at;
    }
  };
  struct Piece {
    std::uint64_t unit;
    std::size_t shard, row;  // position in the unit's ids
    FileDescriptor file;
    std::uint64_t offset;      // of what is wanted, in the file
    std::size_t bytes, first;  // first: byte of its first sample
    char* place;               // where it is wanted
    AsyncRead read;
    std::uint32_t block;  // what O_DIRECT reads is a multiple of it
    bool straight;
    int interruptions;
  };
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };

  std::size_t under_way() const { return pieces_.size() - free_.size(); }

  void issue() {
    while (under_way() < std::size_t(depth_->depth()) && cut_ < begun_) {
      Unit& unit = units_[cut_ % units_.size()];
      if (row_ == unit.ids.size() || unit.failure) {
        rows_left_ -= unit.ids.size() - row_;
        ++cut_, row_ = 0, byte_ = 0;
        continue;
      }
      try {
        cut(unit);
      } catch (...) {
        unit.fail(row_, std::current_exception());
      }
    }
  }

  // The next piece of the unit is put under way.
  void cut(Unit& unit) {
    const std::size_t s = shard_of(files_.index, unit.ids[row_]), x_bytes = files_.x_bytes;
    const ShardRange shard = files_.index.shards.range(s);
    FileDescriptor file = files_.direct.open(s);
    const DirectAlignment align = alignment(file, s);
    const std::uint32_t number = free_.back();
    Piece& p = pieces_[number];
    p.unit = cut_, p.shard = s, p.row = row_, p.first = byte_, p.block = align.offset, p.interruptions = 0;
    p.file = std::move(file);
    p.offset = shard.x_offset + std::uint64_t(unit.ids[row_] - shard.first) * x_bytes + byte_;
    p.place = unit.x + row_ * files_.pitch + byte_;
    p.bytes = std::min(run_length(files_.index, shard, unit.ids, row_) * x_bytes - byte_, block_ - 2 * page);
    p.straight = straight_ && p.offset % align.offset == 0 && p.bytes % align.offset == 0 &&
                 reinterpret_cast<std::uintptr_t>(p.place) % align.memory == 0;
    free_.pop_back();
    ++unit.pieces;
    put_under_way(p, number);
    byte_ += p.bytes;
    rows_left_ -= byte_ / x_bytes;
    row_ += byte_ / x_bytes, byte_ %= x_bytes;
  }

  void put_under_way(Piece& p, std::uint32_t number) {
    const std::uint64_t from = p.straight ? p.offset : p.offset / p.block * p.block,
                        to = (p.offset + p.bytes + p.block - 1) / p.block * p.block;
    p.read = {p.file, from, std::uint32_t(p.straight ? p.bytes : to - from),
              p.straight ? p.place : memory_.get() + number * block_, number};
    if (in_flight_reads) in_flight_reads->begin(first_place_ + number, files_.index.shards.range(p.shard).first);
    async_->add(p.read);
  }

  void wait() {
    const bool full = under_way() >= std::size_t(depth_->depth());
    AsyncDone done[16];
    const std::size_t n = async_->wait(done);
    const double at = now();
    for (std::size_t d = 0; d < n; ++d) {
      depth_->read_completed(std::uint64_t(std::max(0, done[d].result)), at, full);
      ended(done[d]);
    }
  }

  void ended(const AsyncDone& done) {
    Piece& p = pieces_[done.tag];
    Unit& unit = units_[p.unit % units_.size()];
    if (again(p, done)) return;
    const auto sample = [&](std::size_t bytes) {
      return unit.ids[p.row] + std::int64_t((p.first + bytes) / files_.x_bytes);
    };
    const auto shard = [&] { return files_.index.shards[p.shard]; };
    if (in_flight_reads) in_flight_reads->end(first_place_ + done.tag);
    try {
      if (done.result < 0) fail_reading(shard(), sample(0), -done.result);
      const std::uint64_t end = p.read.offset + std::uint64_t(done.result);  // of what is there
      if (end < p.offset + p.bytes) fail_truncated(shard(), sample(end > p.offset ? end - p.offset : 0));
      if (!p.straight) std::copy_n(memory_.get() + done.tag * block_ + p.offset % p.block, p.bytes, p.place);
    } catch (...) {
      unit.fail(p.row, std::current_exception());
    }
    p.file = {};
    --unit.pieces;
    free_.push_back(done.tag);
  }

  // Interrupted, or not all at once: the rest is put under way. Memory that the kernel cannot read into: by a buffer.
  bool again(Piece& p, const AsyncDone& done) {
    if (done.result == -EFAULT && p.straight) {
      straight_ = p.straight = false;
      put_under_way(p, done.tag);
      return true;
    }
    const bool interrupted =
        (done.result == -EINTR || done.result == -EAGAIN) && p.interruptions++ < most_interruptions;
    const bool part = done.result > 0 && std::uint32_t(done.result) < p.read.bytes &&
                      std::uint32_t(done.result) % p.block == 0 &&
                      p.read.offset + std::uint64_t(done.result) < p.offset + p.bytes;
    if (!interrupted && !part) return false;
    if (part) {
      const auto n = std::uint32_t(done.result);
      p.read.offset += n, p.read.to += n, p.read.bytes -= n;
    }
    async_->add(p.read);
    return true;
  }

  DirectAlignment alignment(int fd, std::size_t s) {
    DirectAlignment& known = alignments_[s];
    if (known.offset > 0) return known;
    if (files_.index.copies) return known = {page, page};  // of the source and of the copy, whichever is open
    const DirectAlignment found = direct_alignment(fd);
    if (found.offset == 0 || found.offset > page || found.memory > page)
      fail(Exit::data, files_.index.shards[s].path,
           " is on a file system that refuses O_DIRECT. use data.reader = direct");
    return known = found;
  }

  DirectIoFiles& files_;
  const std::size_t block_;  // bytes of a piece's buffer
  std::unique_ptr<char, Free> memory_;
  std::unique_ptr<AsyncReads> async_;
  std::unique_ptr<QueueDepthTuner> depth_;
  std::vector<Unit> units_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> free_;
  // Units begun, finished, and cut into pieces; where the cutting is in its unit; rows not cut yet.
  std::uint64_t begun_ = 0, finished_ = 0, cut_ = 0;
  std::size_t row_ = 0, byte_ = 0, rows_left_ = 0;
  std::size_t first_place_ = 1;
  bool straight_ = true;
  std::vector<DirectAlignment> alignments_;  // by shard; offset 0: not looked up
};

}  // namespace

std::unique_ptr<ReadQueue> make_direct_io_reads(DirectIoFiles& files, std::span<char> slots,
                                                const MakeAsyncReads& make) {
  return std::make_unique<DirectIoReadQueue>(files, slots, make);
}

}  // namespace millrace
