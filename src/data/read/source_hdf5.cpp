// Reads through the HDF5 library: by MPI-IO (independent or collective transfers) on request, and by the serial driver
// for data that the other engines cannot decode. There is one worker, because the library has one global lock. Rows are
// read in the order of the files, so that the rows of a chunk follow each other and it is decoded once for them.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
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

constexpr std::size_t max_open_files = 32;  // with the serial driver; each may keep chunks in memory

class Hdf5Source : public Source {
 public:
  Hdf5Source(World& world, const ShardIndex& index, Reader reader, std::string why)
      : index_(index),
        why_(std::move(why)),
        through_mpi_(uses_mpi_io(reader) && world.mpi_comm()),
        x_bytes_(index.sample_bytes()),
        pitch_(index.sample_pitch()),
        y_stored_bytes_(y_stored_bytes(index)),
        y_row_bytes_(y_batch_bytes(index)),
        files_(index.shards.size()) {
    index_.x.big_endian = index_.y.big_endian = false;  // the library converts
    for (ConcatenatedPart& part : index_.y.parts) part.big_endian = false;
    if (!through_mpi_) return;
    if (readable_without_hdf5(index)) check_ = make_direct_source(index, "");
    std::string problem;
    if (const std::size_t allowed = raise_open_file_limit(files_.size()); allowed < files_.size())
      problem = fmt::format(
          "data.reader = {} keeps all files open, {} here; this process may open {}. use auto or direct, or raise "
          "ulimit -n",
          name_of(reader), files_.size(), allowed);
    world.agree(Exit::config, problem);
    for (std::size_t s = 0; s < files_.size(); ++s)
      files_[s] = io::File::open_parallel(index.shards[s].path,
                                          world);  // collective: all ranks open all files now, in the same order
    if (reader == Reader::mpio_collective)
      collective_reader_ = std::make_unique<CollectiveReader>(
          world, index_, [this](auto shards, const auto& request) { read_collectively(shards, request); });
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const std::lock_guard lock(mutex_);
    sort_by_id(ids, order_);
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
    return collective_reader_ ? collective_reader_->make_read_queue() : Source::make_read_queue(slots);
  }

  std::string describe() const override {
    return fmt::format("{}, {} files{}",
                       collective_reader_ ? "mpio_collective: collective H5Dread through MPI-IO"
                       : through_mpi_     ? "mpio: independent H5Dread through MPI-IO"
                                          : fmt::format("hdf5: H5Dread ({})", describe_storage(index_)),
                       files_.size(), why_);
  }
  int max_workers() const override { return 1; }

  // Opening files through MPI-IO is collective, so this rank cannot do it alone.
  void reopen(std::size_t s) override {
    const std::lock_guard lock(mutex_);
    if (through_mpi_ || !files_[s]) return;
    files_[s].reset();
    std::erase(open_order_, s);
  }

 private:
  // Reads the rows that are wanted of a data set of one shard.
  using ReadRows = std::function<void(const std::string& name, DType, void* out)>;

  void grow_buffers(std::size_t rows) {
    x_rows_.resize(std::max(x_rows_.size(), rows > 1 ? rows * x_bytes_ : 0));
    y_stored_.resize(std::max(y_stored_.size(), rows * y_stored_bytes_));
    y_rows_.resize(std::max(y_rows_.size(), rows * y_row_bytes_));
  }

  // Reads rows id, id + 1, ... of shard s. Row i goes to row places[i] of x and y.
  void read_run(std::size_t s, std::int64_t id, std::span<const std::size_t> places, char* x, char* y) {
    const Shard& shard = index_.shards[s];
    const ReadScope here(shard);
    const std::size_t rows = places.size();
    grow_buffers(rows);
    char* const to = rows > 1 ? x_rows_.data() : x + places[0] * pitch_;
    try {
      io::File& file = open(s);
      const ReadRows read = [&](const std::string& name, DType dtype, void* out) {
        file.read_rows(name, id - shard.first, std::int64_t(rows), dtype, out);
      };
      read(index_.x.name, index_.x.dtype, to);
      if (y_row_bytes_ > 0) read_targets(read, shard, rows);
    } catch (const Error& e) {
      fail(e.code(), "cannot read sample {} of {} ({})", id, shard.path, e.what());
    }
    const char* const converted = y_rows_.data();
    if (check_)
      check_zeros(shard, id + std::int64_t(rows) - 1, to + (rows - 1) * x_bytes_,
                  converted + (rows - 1) * y_row_bytes_);
    for (std::size_t r = 0; r < rows; ++r) {
      if (rows > 1) std::memcpy(x + places[r] * pitch_, to + r * x_bytes_, x_bytes_);
      std::memcpy(y + places[r] * y_row_bytes_, converted + r * y_row_bytes_, y_row_bytes_);
    }
  }

  // A collective read of these shards: each rank gets its own samples. All calls are made even after a failure, because
  // the other ranks make them too.
  void read_collectively(std::span<const std::int64_t> shards, const CollectiveReader::Request& r) {
    const std::lock_guard lock(mutex_);
    sort_by_id(r.ids, order_);
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
    for (const std::size_t p : places)  // a sample that is requested twice is read once
      if (rows_.empty() || rows_.back() != r.ids[p] - shard.first) rows_.push_back(r.ids[p] - shard.first);
    grow_buffers(std::max<std::size_t>(2, rows_.size()));
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
      if (y_row_bytes_ > 0) read_targets(read, shard, rows_.size());
    } catch (const Error& e) {
      if (problem.empty()) problem = e.what();
    }
    if (!problem.empty() && !places.empty())
      fail(Exit::data, "cannot read sample {} of {} ({})", r.ids[places.front()], shard.path, problem);
    std::size_t row = 0;
    for (const std::size_t p : places) {
      if (rows_[row] != r.ids[p] - shard.first) ++row;
      const char *const from = x_rows_.data() + row * x_bytes_, *const target = y_rows_.data() + row * y_row_bytes_;
      if (check_) check_zeros(shard, r.ids[p], from, target);
      std::memcpy(static_cast<char*>(r.x) + p * pitch_, from, x_bytes_);
      std::memcpy(static_cast<char*>(r.y) + p * y_row_bytes_, target, y_row_bytes_);
    }
  }

  // Writes labels or targets, as the step needs them, to y_rows_. All parts are read even if the values of one are
  // invalid.
  void read_targets(const ReadRows& read, const Shard& shard, std::size_t rows) {
    const auto parts = targets_of(index_, shard);
    std::size_t first = 0;  // where the part starts within a row
    std::exception_ptr failure;
    for (const TargetPart& part : parts) {
      read(part.name, part.dtype, y_stored_.data());
      const std::size_t step = parts.size() == 1 ? y_row_bytes_ : std::size_t(part.count) * sizeof(float);
      y_part_.resize(std::max(y_part_.size(), rows * step));
      try {
        convert_targets(part, shard, std::int64_t(rows), y_stored_.data(), y_part_.data());
      } catch (const Error&) {
        if (!failure) failure = std::current_exception();
      }
      for (std::size_t r = 0; r < rows; ++r)
        std::memcpy(y_rows_.data() + r * y_row_bytes_ + first, y_part_.data() + r * step, step);
      first += step;
    }
    if (failure) std::rethrow_exception(failure);
  }

  // Some MPI libraries do not report a failed read, and HDF5 then returns zeros up to the end of the request. So a last
  // sample of zeros is trusted only if the engine `direct` reads zeros too.
  void check_zeros(const Shard& shard, std::int64_t id, const char* x, const char* y) {
    const auto zeros = [](const char* at, std::size_t n) { return at[0] == 0 && std::memcmp(at, at + 1, n - 1) == 0; };
    if (!zeros(x, x_bytes_) && (y_row_bytes_ == 0 || !zeros(y, y_row_bytes_))) return;
    x_check_.resize(x_bytes_);
    y_check_.resize(y_row_bytes_);
    check_->read({&id, 1}, x_check_.data(), y_check_.data());
    if (std::memcmp(x_check_.data(), x, x_bytes_) != 0 || std::memcmp(y_check_.data(), y, y_row_bytes_) != 0)
      throw ReadError(fmt::format("cannot read sample {} of {} (MPI-IO returned zeros instead)", id, shard.path), EIO);
  }

  io::File& open(std::size_t s) {
    if (files_[s]) return *files_[s];
    if (open_order_.size() == max_open_files) {
      files_[open_order_.front()].reset();
      open_order_.pop_front();
    }
    files_[s] = io::File::open(path_to_read(index_, s));
    open_order_.push_back(s);
    return *files_[s];
  }

  ShardIndex index_;
  const std::string why_;
  const bool through_mpi_;
  const std::size_t x_bytes_, pitch_, y_stored_bytes_, y_row_bytes_;
  std::mutex mutex_;
  std::vector<std::optional<io::File>> files_;
  std::deque<std::size_t> open_order_;  // serial files, oldest first
  std::vector<std::size_t> order_;
  std::vector<std::int64_t> rows_;
  std::vector<char> x_rows_, y_rows_, y_stored_, y_part_, x_check_, y_check_;
  std::unique_ptr<Source> check_;  // with MPI-IO, for files that the engine `direct` can read
  std::unique_ptr<CollectiveReader>
      collective_reader_;  // last member: its thread uses the others until it is destroyed
};

}  // namespace

std::unique_ptr<Source> make_hdf5_source(World& world, const ShardIndex& index, Reader reader, const std::string& why) {
  return std::make_unique<Hdf5Source>(world, index, reader, why);
}

}  // namespace millrace
