#include "data/scan/scan_shards.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/index/read_error.hpp"
#include "data/scan/append_shard.hpp"
#include "data/scan/header_prefetcher.hpp"
#include "data/scan/indexing_watchdog.hpp"
#include "data/scan/manifest_cache.hpp"
#include "data/scan/scan_file.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t cache_min_files = 64;  // smaller data sets get no manifest cache
constexpr std::size_t stat_threads = 16;     // more than cores: they wait for the file system
constexpr double slow_scan_seconds = 2;      // longer scans log their progress and their use of the cache

// A hint for the error of a file that another program is still writing. HDF5 marks a file as open for writing only in
// its newest formats. For other files the hint is given if the file is incomplete and was modified recently.
std::string being_written_hint(const std::string& path, const std::string& problem) {
  constexpr std::int64_t recent_seconds = 120;
  bool incomplete = false;
  for (const char* words : {"truncated", "is empty (0 bytes)", "no signature", "marked open for writing", "cut off"})
    incomplete = incomplete || problem.find(words) != std::string::npos;
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (!incomplete || error) return "";
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(std::filesystem::file_time_type::clock::now() - written).count();
  if (age < 0 || age > recent_seconds) return "";
  return fmt::format("; it was written to {} s ago. if a program is still writing it, wait until it has finished", age);
}

// Sizes and modification times. A file whose status cannot be read gets an empty stamp; opening it reports the reason.
std::vector<FileStamp> read_stamps(const std::vector<std::string>& paths) {
  std::vector<FileStamp> out(paths.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) {
      struct stat status {};
      if (::stat(paths[i].c_str(), &status) != 0) continue;
      out[i] = {std::uint64_t(status.st_size),
                std::int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t t = 1; t < std::min(stat_threads, paths.size() / 8); ++t) threads.emplace_back(work);
  work();
  return out;
}

class ProgressLog {
 public:
  explicit ProgressLog(std::size_t files) : files_(files) {}
  void update(std::size_t file, std::size_t headers_read) {
    if (Clock::now() - logged_ < std::chrono::duration<double>(slow_scan_seconds)) return;
    logged_ = Clock::now();
    log::info(fmt::format("listing the data: {} of {} files, {} headers read", file, files_, headers_read));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  const std::size_t files_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point logged_ = began_;
};

void warn_of_duplicates(std::vector<std::string> files) {
  std::sort(files.begin(), files.end());
  const auto twice = std::adjacent_find(files.begin(), files.end());
  if (twice != files.end())
    log::info(fmt::format("warning: {} is named more than once: its samples count as often", *twice));
}

std::vector<std::string> list_files(const DataOptions& options, IndexingWatchdog& watchdog) {
  std::vector<std::string> out;
  for (const std::string& pattern : options.paths) {
    watchdog.at(pattern);
    auto files = expand_glob(pattern);
    if (files.empty()) fail(Exit::data, "'{}' matches no file. check the path, or pack the data first", pattern);
    out.insert(out.end(), std::make_move_iterator(files.begin()), std::make_move_iterator(files.end()));
  }
  if (options.paths.size() > 1) warn_of_duplicates(out);
  return out;
}

// Scans one file. Retries after a transient error of the file system, as reads during training do.
ShardIndex scan_with_retries(const std::string& path, const DataOptions& options, const ShardIndex& previous) {
  constexpr double nap = 0.01;  // seconds; the watchdog takes a thread that sleeps longer for one that is blocked
  double delay = options.faults.retry_delay;
  for (int tries = options.faults.retries;; --tries) try {
      return options.view.sample != SampleKind::rows ? scan_view(path, options) : scan_file(path, options, previous);
    } catch (const Error& e) {
      if (tries <= 0 || !is_transient(system_error_of(e))) throw;
      if (tries == options.faults.retries) log::local(fmt::format("warning: {}. tried again", e.what()));
      for (double left = delay; left > 0; left -= nap)
        std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, nap)));
      delay = std::min(2 * delay, max_retry_delay);
    }
}

class ShardScan {
 public:
  explicit ShardScan(const DataOptions& options)
      : options_(options), watchdog_(options.faults), paths_(list_files(options, watchdog_)), progress_(paths_.size()) {
    // The cache holds rows only: it has no key for the views that cut samples from arrays.
    const bool rows = options.view.sample == SampleKind::rows;
    if (rows && options.manifest_cache && paths_.size() >= cache_min_files) cache_.emplace(options, paths_.front());
    stamps_ = cache_ ? read_stamps(paths_) : std::vector<FileStamp>(paths_.size());
    out_.x.name = options.x;
    out_.y.name = options.y;
    out_.decode = options.decode;
  }

  ShardIndex run() {
    add_files();
    check();
    if (cache_ && headers_read_ > 0) save_cache();
    out_.manifest_crc = manifest_crc();
    return out_;
  }

 private:
  void add_files() {
    std::vector<std::size_t> uncached;
    for (std::size_t i = 0; i < paths_.size(); ++i)
      if (!cache_ || !cache_->find(paths_[i], stamps_[i])) uncached.push_back(i);
    HeaderPrefetcher prefetcher(paths_, uncached);
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      progress_.update(i, headers_read_);
      if (headers_read_ < uncached.size() && uncached[headers_read_] == i) {
        watchdog_.at(paths_[i]);
        add_uncached(paths_[i], stamps_[i]);
        prefetcher.file_done();
        ++headers_read_;
      } else {
        add_cached(*cache_->find(paths_[i], stamps_[i]), stamps_[i]);
      }
    }
  }

  void add_uncached(const std::string& path, const FileStamp& stamp) {
    try {
      const ShardIndex one = scan_with_retries(path, options_, out_);
      if (one.rows == 0) return;
      append_shard(out_, one, one.shards.front());
      if (cache_) cache_->add(out_.shards.back(), one, stamp);
    } catch (const Error& e) {
      fail(e.code(), "{}{}", e.what(), being_written_hint(path, e.what()));
    }
  }

  void add_cached(const ManifestCache::CachedShard& cached, const FileStamp& stamp) {
    if (cached.metadata == last_metadata_) {  // compared with the other files already
      Shard shard = cached.shard;
      shard.first = out_.rows;
      out_.rows += shard.rows;
      out_.shards.push_back(shard);
    } else {
      append_shard(out_, *cached.metadata, cached.shard);
      last_metadata_ = cached.metadata;
    }
    cache_->add(cached, stamp);
  }

  void check() const {
    constexpr std::int64_t max_classes = 1 << 24;
    const char* more = paths_.size() > 1 ? ", ..." : "";
    if (out_.rows == 0)
      fail(Exit::data, "the data set has no rows ({}{}){}", paths_.front(), more, no_samples_reason(options_));
    if (out_.y.labels && !out_.samples_are_views() && out_.classes.count > std::max(max_classes, out_.rows))
      fail(Exit::data,
           "{}{}: '{}' holds the label {}, the data set has {} rows. number the classes from 0; or store targets of a "
           "regression as floating point",
           paths_.front(), more, options_.y, out_.classes.count - 1, out_.rows);
  }

  void save_cache() const {
    const std::string path = cache_->save();
    if (!path.empty() && progress_.seconds() > slow_scan_seconds)
      log::info(fmt::format("listing the data: {} headers read in {}; the next start finds them in {}", headers_read_,
                            format_seconds(progress_.seconds()), path));
  }

  std::uint32_t manifest_crc() const {
    std::string manifest =
        fmt::format("{}{}{}{}", out_.sample.str(), name_of(out_.x.dtype),
                    out_.x.channels_first ? " channels first" : "", out_.encoded() ? " encoded" : "");
    for (const auto* parts : {&out_.x.parts, &out_.y.parts})
      for (const ConcatenatedPart& part : *parts)
        manifest += fmt::format(" {} {}{}", part.name, part.count, part.labels ? " labels" : "");
    for (const Shard& s : out_.shards) {
      const std::string path = s.path;
      manifest += fmt::format("\n{} {} {}", std::string_view(path).substr(path.rfind('/') + 1), s.rows, s.file_bytes);
    }
    return crc32(manifest.data(), manifest.size());
  }

  const DataOptions& options_;
  IndexingWatchdog watchdog_;
  const std::vector<std::string> paths_;
  ProgressLog progress_;
  std::optional<ManifestCache> cache_;
  std::vector<FileStamp> stamps_;
  ShardIndex out_;
  const ShardIndex* last_metadata_ = nullptr;  // of the last cached file
  std::size_t headers_read_ = 0;
};

}  // namespace

ShardIndex scan_shards(const DataOptions& options) { return ShardScan(options).run(); }

}  // namespace millrace
