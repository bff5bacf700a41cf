// Reading through the HDF5 library: MPI-IO (independent or collective transfers) on request, the serial driver for what
// own reads cannot decode. One worker: the library has one global lock. Rows are read in the order of the files, so
// that rows of one chunk follow each other and inflate it once.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "data/index/concatenated.hpp"
#include "data/index/local_copies.hpp"
#include "data/index/read_error.hpp"
#include "data/read/collective_reader.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

constexpr std::size_t open_at_once = 32;  // serial files: each may keep a band of chunks in memory

class Hdf5Source : public Source {
 public:
  Hdf5Source(World& world, const ShardIndex& index, Reader reader, std::string why)
      : index_(index),
        why_(std::move(why)),
        through_mpi_(uses_mpi_io(reader) && world.mpi_comm()),
        x_bytes_(index.sample_bytes()),
        pitch_(index.sample_pitch()),
        y_stored_bytes_(y_stored_bytes(index)),
        y_step_(y_batch_bytes(index)),
        files_(index.shards.size()) {
    index_.x.big_endian = index_.y.big_endian = false;  // the library converts
    if (!through_mpi_) return;
    if (readable_without_hdf5(index)) check_ = make_direct_source(index, "");
    std::string problem;
    if (const std::size_t may = raise_open_file_limit(files_.size()); may < files_.size())
      problem = cat("data.reader = ", name_of(reader), " keeps all files open, ", files_.size(),
                    " here, of which this process may have ", may, ". use auto or direct, or raise ulimit -n");
    world.agree(Exit::config, problem);
    for (std::size_t s = 0; s < files_.size(); ++s)
      files_[s] = io::File::open_parallel(index.shards[s].path, world);  // collective: all now, in one order
    if (reader == Reader::mpio_collective)
      together_ = std::make_unique<CollectiveReader>(
          world, index_, [this](auto shards, const auto& request) { read_together(shards, request); });
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const std::lock_guard lock(mutex_);
    order_.resize(ids.size());
    std::iota(order_.begin(), order_.end(), std::size_t(0));
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
    for (std::size_t i = 0; i < ids.size();) {
      const std::int64_t id = ids[order_[i]];
      const std::size_t s = shard_of(index_, id);
      const Shard& shard = index_.shards[s];
      std::size_t run = 1;
      while (i + run < ids.size() && ids[order_[i + run]] == id + std::int64_t(run) &&
             id + std::int64_t(run) < shard.first + shard.rows)
        ++run;
      read_run(s, id, {order_.data() + i, run}, static_cast<char*>(x), static_cast<char*>(y));
      i += run;
    }
  }

  std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots) override {
    return together_ ? together_->make_read_queue() : Source::make_read_queue(slots);
  }

  std::string describe() const override {
    return cat(together_      ? "mpio_collective: H5Dread through MPI-IO by all ranks together"
               : through_mpi_ ? "mpio: independent H5Dread through MPI-IO"
                              : cat("hdf5: H5Dread (", describe_storage(index_), ")"),
               ", ", files_.size(), " files", why_);
  }
  int max_workers() const override { return 1; }

  // Files of MPI-IO are opened by all ranks together, so not here.
  void reopen(std::size_t s) override {
    const std::lock_guard lock(mutex_);
    if (through_mpi_ || !files_[s]) return;
    files_[s].reset();
    std::erase(opened_, s);
  }

 private:
  // Rows of a data set in shard s.
  using ReadRows = std::function<void(const std::string& name, DType, void* out)>;

  void make_room(std::size_t rows) {
    x_rows_.resize(std::max(x_rows_.size(), rows > 1 ? rows * x_bytes_ : 0));
    y_stored_.resize(std::max(y_stored_.size(), rows * y_stored_bytes_));
    y_rows_.resize(std::max(y_rows_.size(), rows * y_step_));
  }

  // Rows id, id + 1, ... of shard s to the places given.
  void read_run(std::size_t s, std::int64_t id, std::span<const std::size_t> places, char* x, char* y) {
    const Shard& shard = index_.shards[s];
    const ReadScope here(shard);
    const std::size_t rows = places.size();
    make_room(rows);
    char* const to = rows > 1 ? x_rows_.data() : x + places[0] * pitch_;
    try {
      io::File& file = open(s);
      const ReadRows read = [&](const std::string& name, DType dtype, void* out) {
        file.read_rows(name, id - shard.first, std::int64_t(rows), dtype, out);
      };
      read(index_.x.name, index_.x.dtype, to);
      if (y_step_ > 0) read_targets(read, shard, rows);
    } catch (const Error& e) {
      fail(e.code(), "cannot read sample ", id, " of ", shard.path, " (", e.what(), ")");
    }
    const char* const converted = y_rows_.data();
    if (check_)
      check_zeros(shard, id + std::int64_t(rows) - 1, to + (rows - 1) * x_bytes_, converted + (rows - 1) * y_step_);
    for (std::size_t r = 0; r < rows; ++r) {
      if (rows > 1) std::memcpy(x + places[r] * pitch_, to + r * x_bytes_, x_bytes_);
      std::memcpy(y + places[r] * y_step_, converted + r * y_step_, y_step_);
    }
  }

  // What this rank takes of these shards, and all others theirs: every call is made, whatever failed before.
  void read_together(std::span<const std::int64_t> shards, const CollectiveReader::Request& r) {
    const std::lock_guard lock(mutex_);
    order_.resize(r.ids.size());
    std::iota(order_.begin(), order_.end(), std::size_t(0));
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return r.ids[a] < r.ids[b]; });
    std::exception_ptr failure;
    auto next = order_.begin();
    for (const std::int64_t s : shards) {
      const Shard shard = index_.shards[std::size_t(s)];
      const auto begin = next;
      next = std::find_if(begin, order_.end(), [&](std::size_t p) { return r.ids[p] >= shard.first + shard.rows; });
      try {
        read_scattered(std::size_t(s), shard, r, {begin, next});
      } catch (const Error&) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  void read_scattered(std::size_t s, const Shard& shard, const CollectiveReader::Request& r,
                      std::span<const std::size_t> places) {
    rows_.clear();
    for (const std::size_t p : places)  // a sample that is asked for twice is read once
      if (rows_.empty() || rows_.back() != r.ids[p] - shard.first) rows_.push_back(r.ids[p] - shard.first);
    make_room(std::max<std::size_t>(2, rows_.size()));
    std::string problem;
    const ReadRows read = [&](const std::string& name, DType dtype, void* out) {
      try {
        files_[s]->read_rows(name, rows_, dtype, out, io::File::Transfer::collective);
      } catch (const Error& e) {
        if (e.code() != Exit::data) throw;
        if (problem.empty()) problem = e.what();
      }
    };
    read(index_.x.name, index_.x.dtype, x_rows_.data());
    try {
      if (y_step_ > 0) read_targets(read, shard, rows_.size());
    } catch (const Error& e) {
      if (problem.empty()) problem = e.what();
    }
    if (!problem.empty() && !places.empty())
      fail(Exit::data, "cannot read sample ", r.ids[places.front()], " of ", shard.path, " (", problem, ")");
    std::size_t row = 0;
    for (const std::size_t p : places) {
      if (rows_[row] != r.ids[p] - shard.first) ++row;
      const char *const from = x_rows_.data() + row * x_bytes_, *const target = y_rows_.data() + row * y_step_;
      if (check_) check_zeros(shard, r.ids[p], from, target);
      std::memcpy(static_cast<char*>(r.x) + p * pitch_, from, x_bytes_);
      std::memcpy(static_cast<char*>(r.y) + p * y_step_, target, y_step_);
    }
  }

  // Into y_rows_, as the step takes them. All parts are read, even where one has a value that is none.
  void read_targets(const ReadRows& read, const Shard& shard, std::size_t rows) {
    const auto parts = targets_of(index_, shard);
    std::size_t first = 0;  // byte of a target
    std::exception_ptr failure;
    for (const TargetPart& part : parts) {
      read(part.name, index_.y.dtype, y_stored_.data());
      const std::size_t step = parts.size() == 1 ? y_step_ : std::size_t(part.count) * sizeof(float);
      y_part_.resize(std::max(y_part_.size(), rows * step));
      try {
        convert_targets(index_, shard, std::int64_t(rows) * part.count, y_stored_.data(), y_part_.data());
      } catch (const Error&) {
        if (!failure) failure = std::current_exception();
      }
      for (std::size_t r = 0; r < rows; ++r)
        std::memcpy(y_rows_.data() + r * y_step_ + first, y_part_.data() + r * step, step);
      first += step;
    }
    if (failure) std::rethrow_exception(failure);
  }

  // MPI libraries are known to keep a failed read to themselves, and HDF5 then gives zeros to the end of what was asked
  // for. So zeros there are believed only when another way of reading finds them too.
  void check_zeros(const Shard& shard, std::int64_t id, const char* x, const char* y) {
    const auto zeros = [](const char* at, std::size_t n) { return at[0] == 0 && std::memcmp(at, at + 1, n - 1) == 0; };
    if (!zeros(x, x_bytes_) && (y_step_ == 0 || !zeros(y, y_step_))) return;
    x_check_.resize(x_bytes_), y_check_.resize(y_step_);
    check_->read({&id, 1}, x_check_.data(), y_check_.data());
    if (std::memcmp(x_check_.data(), x, x_bytes_) != 0 || std::memcmp(y_check_.data(), y, y_step_) != 0)
      throw ReadError(cat("cannot read sample ", id, " of ", shard.path, " (MPI-IO gave zeros instead)"), EIO);
  }

  io::File& open(std::size_t s) {
    if (files_[s]) return *files_[s];
    if (opened_.size() == open_at_once) {
      files_[opened_.front()].reset();
      opened_.pop_front();
    }
    files_[s] = io::File::open(path_to_read(index_, s));
    opened_.push_back(s);
    return *files_[s];
  }

  ShardIndex index_;
  const std::string why_;
  const bool through_mpi_;
  const std::size_t x_bytes_, pitch_, y_stored_bytes_, y_step_;
  std::mutex mutex_;
  std::vector<std::optional<io::File>> files_;
  std::deque<std::size_t> opened_;  // serial files, oldest first
  std::vector<std::size_t> order_;
  std::vector<std::int64_t> rows_;
  std::vector<char> x_rows_, y_rows_, y_stored_, y_part_, x_check_, y_check_;
  std::unique_ptr<Source> check_;               // MPI-IO, and files that own reads can read
  std::unique_ptr<CollectiveReader> together_;  // the first to go: its thread reads
};

}  // namespace

std::unique_ptr<Source> make_hdf5_source(World& world, const ShardIndex& index, Reader reader, const std::string& why) {
  return std::make_unique<Hdf5Source>(world, index, reader, why);
}

}  // namespace millrace
