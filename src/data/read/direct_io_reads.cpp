// A worker splits a request (a unit) into pieces: a piece is a run of neighbouring samples or a part of a large sample.
// If the piece's offset, length and destination meet the alignment of O_DIRECT, the kernel reads it straight into its
// destination. Otherwise the aligned blocks around the piece are read into a buffer, and the piece is copied from
// there.
#include "data/read/direct_io_reads.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "data/read/queue_depth_tuner.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_units = 128;                        // units in flight, of one worker
constexpr std::size_t max_pieces = InFlightReads::count - 1;  // pieces in flight, of one worker: 64
constexpr std::size_t page = 4096;
constexpr int max_interruptions = 100;  // consecutive ones of a piece

class DirectIoReadQueue : public ReadQueue {
 public:
  DirectIoReadQueue(DirectIoFiles& files, std::span<char> slots, const MakeAsyncReads& make)
      : files_(files),
        block_((std::clamp<std::size_t>(files.x_bytes, 128u << 10, 256u << 10) + 3 * page - 1) / page * page),
        units_(max_units),
        alignments_(files.index.shards.size(), DirectAlignment{0, 0}) {
    memory_.reset(static_cast<char*>(std::aligned_alloc(page, max_pieces * block_)));
    MR_CHECK(memory_);
    const std::span<char> parts[] = {{memory_.get(), max_pieces * block_}, slots};
    async_ = make({parts, slots.empty() ? 1u : 2u});
    // The components of concatenated data sets share the places of InFlightReads.
    const std::size_t share = std::max<std::size_t>(1, max_pieces / files.index.component.count);
    pieces_.resize(std::min(share, async_->capacity()));
    first_place_ = 1 + files.index.component.number % max_pieces * share % max_pieces;
    free_.reserve(pieces_.size());
    for (std::size_t p = pieces_.size(); p-- > 0;) free_.push_back(std::uint32_t(p));
    tuner_ = std::make_unique<QueueDepthTuner>(int(pieces_.size()));
  }
  ~DirectIoReadQueue() override {
    splitting_ = begun_;  // starts no more pieces
    try {
      while (in_flight() > 0) wait();
    } catch (...) {
      std::terminate();  // the kernel would keep writing into freed memory
    }
  }

  void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
    MR_CHECK(begun_ - finished_ < units_.size());
    Unit& unit = units_[begun_ % units_.size()];
    unit = {ids, static_cast<char*>(x), static_cast<char*>(y), 0, nullptr, 0};
    ++begun_;
    rows_left_ += ids.size();
    try {
      issue();
      async_->start();
      // The targets are read while the disk works.
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

  // True while the rows that wait to be submitted, apart from those of the oldest unit, would not fill the queue.
  bool can_submit() const override {
    if (begun_ == finished_) return true;
    const std::size_t in_oldest = splitting_ == finished_ ? units_[splitting_ % units_.size()].ids.size() - row_ : 0;
    const std::size_t each = (files_.x_bytes + block_ - 1) / block_;
    return begun_ - finished_ < units_.size() && (rows_left_ - in_oldest) * each < std::size_t(tuner_->depth());
  }

  void finish() override {
    MR_CHECK(finished_ < begun_);
    Unit& unit = units_[finished_ % units_.size()];
    while (unit.pieces > 0 || splitting_ == finished_) {
      issue();
      if (in_flight() > 0) wait();
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
    std::size_t pieces;  // in flight
    std::exception_ptr failure;
    std::size_t failed_at;  // position in ids

    // Of several failures, the one of the first sample is kept, whatever the order in which they came.
    void fail(std::size_t at, std::exception_ptr e) {
      if (failure && at >= failed_at) return;
      failure = std::move(e);
      failed_at = at;
    }
  };
  struct Piece {
    std::uint64_t unit;
    std::size_t shard;
    std::size_t row;  // of its first sample: position in the unit's ids
    FileDescriptor file;
    std::uint64_t offset;  // of the wanted bytes, in the file
    std::size_t bytes;     // wanted
    std::size_t first;     // where the piece starts within its first sample
    char* place;           // destination
    AsyncRead read;        // the aligned read that contains the piece
    std::uint32_t block;   // O_DIRECT's alignment of offsets and lengths
    bool straight;         // read into the destination; else into a buffer
    int interruptions;
  };
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };

  std::size_t in_flight() const { return pieces_.size() - free_.size(); }

  void issue() {
    while (in_flight() < std::size_t(tuner_->depth()) && splitting_ < begun_) {
      Unit& unit = units_[splitting_ % units_.size()];
      if (row_ == unit.ids.size() || unit.failure) {
        rows_left_ -= unit.ids.size() - row_;
        ++splitting_;
        row_ = 0;
        byte_ = 0;
        continue;
      }
      try {
        split(unit);
      } catch (...) {
        unit.fail(row_, std::current_exception());
      }
    }
  }

  // Submits the next piece of the unit.
  void split(Unit& unit) {
    const std::size_t s = shard_of(files_.index, unit.ids[row_]), x_bytes = files_.x_bytes;
    const ShardRange shard = files_.index.shards.range(s);
    FileDescriptor file = files_.direct.open(s);
    const DirectAlignment align = alignment(file, s);
    const std::uint32_t number = free_.back();
    Piece& p = pieces_[number];
    p.unit = splitting_;
    p.shard = s;
    p.row = row_;
    p.first = byte_;
    p.block = align.offset;
    p.interruptions = 0;
    p.file = std::move(file);
    p.offset = shard.x_offset + std::uint64_t(unit.ids[row_] - shard.first) * x_bytes + byte_;
    p.place = unit.x + row_ * files_.pitch + byte_;
    p.bytes = std::min(run_length(files_.index, shard, unit.ids, row_) * x_bytes - byte_, block_ - 2 * page);
    p.straight = straight_ && p.offset % align.offset == 0 && p.bytes % align.offset == 0 &&
                 reinterpret_cast<std::uintptr_t>(p.place) % align.memory == 0;
    free_.pop_back();
    ++unit.pieces;
    submit(p, number);
    byte_ += p.bytes;
    rows_left_ -= byte_ / x_bytes;
    row_ += byte_ / x_bytes;
    byte_ %= x_bytes;
  }

  void submit(Piece& p, std::uint32_t number) {
    const std::uint64_t from = p.straight ? p.offset : p.offset / p.block * p.block,
                        to = (p.offset + p.bytes + p.block - 1) / p.block * p.block;
    p.read = {p.file, from, std::uint32_t(p.straight ? p.bytes : to - from),
              p.straight ? p.place : memory_.get() + number * block_, number};
    if (in_flight_reads) in_flight_reads->begin(first_place_ + number, files_.index.shards.range(p.shard).first);
    async_->add(p.read);
  }

  void wait() {
    const bool full = in_flight() >= std::size_t(tuner_->depth());
    AsyncDone done[16];
    const std::size_t n = async_->wait(done);
    const double at = steady_seconds();
    for (std::size_t d = 0; d < n; ++d) {
      tuner_->read_completed(std::uint64_t(std::max(0, done[d].result)), at, full);
      piece_ended(done[d]);
    }
  }

  void piece_ended(const AsyncDone& done) {
    Piece& p = pieces_[done.tag];
    Unit& unit = units_[p.unit % units_.size()];
    if (read_again(p, done)) return;
    const auto sample = [&](std::size_t bytes) {
      return unit.ids[p.row] + std::int64_t((p.first + bytes) / files_.x_bytes);
    };
    const auto shard = [&] { return files_.index.shards[p.shard]; };
    if (in_flight_reads) in_flight_reads->end(first_place_ + done.tag);
    try {
      if (done.result < 0) fail_reading(shard(), sample(0), -done.result);
      const std::uint64_t end = p.read.offset + std::uint64_t(done.result);  // of the bytes that were read
      if (end < p.offset + p.bytes) fail_truncated(shard(), sample(end > p.offset ? end - p.offset : 0));
      if (!p.straight) std::copy_n(memory_.get() + done.tag * block_ + p.offset % p.block, p.bytes, p.place);
    } catch (...) {
      unit.fail(p.row, std::current_exception());
    }
    p.file = {};
    --unit.pieces;
    free_.push_back(done.tag);
  }

  // True: the piece was submitted again. After an interruption or a short read this is for the rest of it; where the
  // kernel cannot read into the destination, it is for the whole piece by way of a buffer.
  bool read_again(Piece& p, const AsyncDone& done) {
    if (done.result == -EFAULT && p.straight) {
      straight_ = p.straight = false;
      submit(p, done.tag);
      return true;
    }
    const bool interrupted = (done.result == -EINTR || done.result == -EAGAIN) && p.interruptions++ < max_interruptions;
    const bool part = done.result > 0 && std::uint32_t(done.result) < p.read.bytes &&
                      std::uint32_t(done.result) % p.block == 0 &&
                      p.read.offset + std::uint64_t(done.result) < p.offset + p.bytes;
    if (!interrupted && !part) return false;
    if (part) {
      const auto n = std::uint32_t(done.result);
      p.read.offset += n;
      p.read.to += n;
      p.read.bytes -= n;
    }
    async_->add(p.read);
    return true;
  }

  DirectAlignment alignment(int fd, std::size_t s) {
    DirectAlignment& known = alignments_[s];
    if (known.offset > 0) return known;
    if (files_.index.copies) return known = {page, page};  // suits both the source and the local copy
    const DirectAlignment found = direct_alignment(fd);
    if (found.offset == 0 || found.offset > page || found.memory > page)
      fail(Exit::data, "{} is on a file system that refuses O_DIRECT. use data.reader = direct",
           files_.index.shards[s].path);
    return known = found;
  }

  DirectIoFiles& files_;
  const std::size_t block_;  // bytes of the buffer of a piece
  std::unique_ptr<char, Free> memory_;
  std::unique_ptr<AsyncReads> async_;
  std::unique_ptr<QueueDepthTuner> tuner_;
  std::vector<Unit> units_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> free_;
  std::uint64_t begun_ = 0, finished_ = 0;   // numbers of units
  std::uint64_t splitting_ = 0;              // the unit that is being split into pieces
  std::size_t row_ = 0, byte_ = 0;           // where its next piece starts
  std::size_t rows_left_ = 0;                // rows of all units that are not yet in a piece
  std::size_t first_place_ = 1;              // of this queue's places in InFlightReads
  bool straight_ = true;                     // the kernel can read into the slots
  std::vector<DirectAlignment> alignments_;  // by shard; offset 0: not yet known
};

}  // namespace

std::unique_ptr<ReadQueue> make_direct_io_reads(DirectIoFiles& files, std::span<char> slots,
                                                const MakeAsyncReads& make) {
  return std::make_unique<DirectIoReadQueue>(files, slots, make);
}

}  // namespace millrace
