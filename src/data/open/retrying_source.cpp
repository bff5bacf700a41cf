// A source around any engine that implements FaultOptions. As long as no read fails, it only notes which file is read,
// for the SlowReadMonitor. When a request fails, its samples are read again one by one. So there is one place for
// retries and skips, whatever the engine.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "data/index/local_copies.hpp"
#include "data/index/read_error.hpp"
#include "data/open/wrappers.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/log.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_pending_units = 128;  // of a worker, submitted and not finished

// A wait that another thread can end; later waits then end at once.
class CancellableWait {
 public:
  void wait(double seconds) {
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ended_; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    stopped_.notify_all();
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool ended_ = false;
};

// A scope in which the monitor looks at the reads of a worker.
struct WatchedWorker {
  SlowReadMonitor& monitor;
  const InFlightReads& places;
  WatchedWorker(SlowReadMonitor& m, const InFlightReads& p) : monitor(m), places(p) { monitor.add(places); }
  ~WatchedWorker() { monitor.remove(places); }
  WatchedWorker(const WatchedWorker&) = delete;
};

class RetryingSource : public Source {
 public:
  RetryingSource(std::unique_ptr<Source> inner, const ShardIndex& index, const FaultOptions& options)
      : index_(index),
        options_(options),
        x_bytes_(index.sample_bytes()),
        y_bytes_(y_batch_bytes(index)),
        retries_failed_(index.shards.size()),
        inner_(std::move(inner)) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    CancellableWait cancellable_wait;
    InFlightReads places;
    const WatchedWorker watched{monitor_, places};
    const WorkerReadScope here(places);
    try {
      return inner_->read(ids, x, y);
    } catch (const Error& e) {
      if (!may_read_local_copies(ids) && !is_retryable(e)) throw;
    }
    read_individually(0, ids, static_cast<char*>(x), static_cast<char*>(y), cancellable_wait);
  }
  std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots) override {
    return std::make_unique<RetryingReadQueue>(*this, inner_->make_read_queue(slots));
  }
  std::string describe() const override { return inner_->describe(); }
  void reopen(std::size_t shard) override { inner_->reopen(shard); }
  int max_workers() const override { return inner_->max_workers(); }
  DecodeStats decoded() const override { return inner_->decoded(); }

  FaultStats faults() const override {
    const std::lock_guard lock(mutex_);
    FaultStats out;
    out.retries = retries_;
    out.skipped_samples = skipped_;
    std::map<std::size_t, FileFaults> files = files_;
    for (const std::int64_t s : monitor_.slow()) files[std::size_t(s)].slow = true;
    for (auto& [s, file] : files) {
      file.path = index_.shards[s].path;
      out.files.push_back(file);
    }
    return out;
  }

 private:
  class RetryingReadQueue : public ReadQueue {
   public:
    RetryingReadQueue(RetryingSource& source, std::unique_ptr<ReadQueue> inner)
        : source_(source), watched_(source.monitor_, places_), inner_(std::move(inner)) {}

    void epoch(std::int64_t e) override {
      epoch_ = e;
      inner_->epoch(e);
    }
    void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
      units_[begun_++ % units_.size()] = {ids, static_cast<char*>(x), static_cast<char*>(y), epoch_};
      const WorkerReadScope here(places_);
      inner_->begin(ids, x, y);
    }
    bool can_submit() const override { return begun_ - finished_ < units_.size() && inner_->can_submit(); }
    void finish() override {
      const Unit unit = units_[finished_++ % units_.size()];
      skipped_ = 0;
      const WorkerReadScope here(places_);
      try {
        return inner_->finish();
      } catch (const Error& e) {
        if (!source_.may_read_local_copies(unit.ids) && !source_.is_retryable(e)) throw;
      }
      skipped_ = source_.read_individually(unit.epoch, unit.ids, unit.x, unit.y, cancellable_wait_);
    }
    std::int64_t skipped() const override { return skipped_; }
    void stop() override { cancellable_wait_.end(); }

   private:
    struct Unit {
      std::span<const std::int64_t> ids;
      char *x = nullptr, *y = nullptr;
      std::int64_t epoch = 0;
    };
    RetryingSource& source_;
    CancellableWait cancellable_wait_;
    std::array<Unit, max_pending_units> units_{};
    std::size_t begun_ = 0, finished_ = 0;
    std::int64_t skipped_ = 0, epoch_ = 0;
    InFlightReads places_;
    WatchedWorker watched_;
    std::unique_ptr<ReadQueue> inner_;  // last member: its destructor waits for the reads in flight
  };

  bool is_retryable(const Error& e) const {
    const int error = system_error_of(e);
    if (e.code() != Exit::data || is_resource_exhaustion(error)) return false;
    return options_.on_error == OnError::skip || (options_.retries > 0 && is_transient(error));
  }

  // True: a sample may have come from a local copy. Whatever is wrong with the copy, the source may still be readable.
  bool may_read_local_copies(std::span<const std::int64_t> ids) const {
    return index_.copies && std::any_of(ids.begin(), ids.end(),
                                        [&](std::int64_t id) { return index_.copies->was_used(shard_of(index_, id)); });
  }

  void abandon_copy(std::size_t s, const Error& e) {
    const std::string copy = index_.copies->path_in_folder(s);
    if (!index_.copies->abandon(s)) return;  // another worker has done it
    log::local(fmt::format("warning: data.cache: {}. this was the local copy {}; reading the source from now on",
                           e.what(), copy));
    reopen_shard(s);
  }

  // Returns the number of samples that were skipped.
  std::int64_t read_individually(std::int64_t epoch, std::span<const std::int64_t> ids, char* x, char* y,
                                 CancellableWait& cancellable_wait) {
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      char *const to_x = x + i * x_bytes_, *const to_y = y + i * y_bytes_;
      if (read_one(epoch, ids[i], to_x, to_y, cancellable_wait)) continue;
      std::memset(to_x, 0, x_bytes_);
      std::memset(to_y, 0xff, y_bytes_);  // every label is -1
      ++skipped;
    }
    return skipped;
  }

  // False: the sample was skipped.
  bool read_one(std::int64_t epoch, std::int64_t id, char* x, char* y, CancellableWait& cancellable_wait) {
    const std::size_t s = shard_of(index_, id);
    for (int attempt = 0;; ++attempt) {
      const bool from_copy = index_.copies && index_.copies->used(s);
      try {
        inner_->read_epoch(epoch, {&id, 1}, x, y);
        retries_failed_[s] = false;
        return true;
      } catch (const Error& e) {
        if (from_copy && e.code() == Exit::data) {
          abandon_copy(s, e);
          continue;
        }
        if (!is_retryable(e)) throw;
        const int error = system_error_of(e);
        const bool transient = is_transient(error);
        const bool stopped = cancellable_wait.ended();
        if (!transient || attempt >= options_.retries || retries_failed_[s] || was_skipped(id) || stopped) {
          if (transient && !stopped) retries_failed_[s] = true;
          if (options_.on_error == OnError::skip) {
            note_skip(s, id, e);
            return false;
          }
          throw ReadError(
              attempt ? fmt::format("{}, even after data.retries = {}", e.what(), options_.retries) : e.what(), error);
        }
        note_retry(s, e);
        cancellable_wait.wait(std::min(max_retry_delay, options_.retry_delay * std::pow(2.0, attempt)));
        if (error == ESTALE || error == EIO) reopen_shard(s);
      }
    }
  }

  // Also after EIO: for a mapped file, a stale handle looks like any other error.
  void reopen_shard(std::size_t s) {
    try {
      inner_->reopen(s);
    } catch (const Error&) {  // the next read fails too and reports the error
    }
  }

  void note_retry(std::size_t s, const Error& e) {
    const std::lock_guard lock(mutex_);
    FileFaults& file = file_faults(s, e);
    if (file.retries++ == 0)
      log::local(
          fmt::format("warning: {}. retrying up to data.retries = {} times; further errors of this file are counted "
                      "but not reported",
                      e.what(), options_.retries));
    ++retries_;
  }

  void note_skip(std::size_t s, std::int64_t id, const Error& e) {
    const std::lock_guard lock(mutex_);
    skipped_ids_.insert(id);
    FileFaults& file = file_faults(s, e);
    if (file.skipped_samples++ == 0)
      log::local(fmt::format(
          "warning: {}. skipped (data.on_error); further errors of this file are counted but not reported", e.what()));
    ++skipped_;
  }

  bool was_skipped(std::int64_t id) const {
    const std::lock_guard lock(mutex_);
    return skipped_ids_.contains(id);
  }

  FileFaults& file_faults(std::size_t s, const Error& e) {
    FileFaults& file = files_[s];
    if (file.error.empty()) file.error = e.what();
    return file;
  }

  const ShardIndex index_;
  const FaultOptions options_;
  const std::size_t x_bytes_, y_bytes_;
  // By shard: all retries of the last failed read have failed. Reads of it are not retried until one succeeds.
  std::vector<std::atomic<bool>> retries_failed_;
  mutable std::mutex mutex_;  // protects the members below
  std::uint64_t retries_ = 0, skipped_ = 0;
  std::map<std::size_t, FileFaults> files_;  // by shard
  std::set<std::int64_t> skipped_ids_;       // not retried in later epochs
  SlowReadMonitor monitor_{index_, options_};
  std::unique_ptr<Source> inner_;
};

}  // namespace

std::unique_ptr<Source> make_retrying_source(std::unique_ptr<Source> inner, const ShardIndex& index,
                                             const FaultOptions& options) {
  return std::make_unique<RetryingSource>(std::move(inner), index, options);
}

}  // namespace millrace
