#include "data/scan/scan_shards.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <semaphore>
#include <thread>
#include <vector>

#include "data/index/read_error.hpp"
#include "data/scan/indexing_watchdog.hpp"
#include "data/scan/manifest_cache.hpp"
#include "data/scan/shard_index.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t many_files = 64;    // a manifest cache, and more than one thread, are for so many
constexpr std::size_t stat_threads = 16;  // they wait for the file system, not for a processor
constexpr std::size_t header_threads = 4, headers_ahead = 64, header_bytes = 16 << 10;

// HDF5 marks a file as open for writing only in its newest formats. Otherwise a file that is half there and was written
// to just now tells as much.
std::string being_written(const std::string& path, const std::string& problem) {
  constexpr std::int64_t just_now = 120;  // seconds
  bool half = false;
  for (const char* words : {"truncated", "is empty (0 bytes)", "no signature", "marked open for writing", "cut off"})
    half = half || problem.find(words) != std::string::npos;
  std::error_code none;
  const auto written = std::filesystem::last_write_time(path, none);
  if (!half || none) return "";
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(std::filesystem::file_time_type::clock::now() - written).count();
  if (age < 0 || age > just_now) return "";
  return cat("; it was written to ", age, " s ago: if a program is still at it, wait for its end");
}

// What cannot be looked at has no stamp; opening it says why.
std::vector<FileStamp> stamps_of(const std::vector<std::string>& paths) {
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

// HDF5 opens one file at a time. Threads that are some files ahead bring the beginnings of files to this host, so that
// the latency of a file system is not paid one file after the other.
class HeaderPrefetcher {
 public:
  HeaderPrefetcher(const std::vector<std::string>& paths, std::vector<std::size_t> wanted)
      : paths_(paths), wanted_(std::move(wanted)) {
    if (wanted_.size() < many_files) return;
    for (std::size_t t = 0; t < header_threads; ++t) threads_.emplace_back([this] { run(); });
  }
  ~HeaderPrefetcher() {
    ending_ = true;
    room_.release(header_threads);
  }
  void done_with_one() {
    if (++done_ % at_once == 0) room_.release(at_once);
  }

 private:
  static constexpr std::ptrdiff_t at_once = 16;  // threads are woken, which costs as much as a file

  void run() {
    std::vector<char> header(header_bytes);
    for (;;) {
      room_.acquire();
      const std::size_t i = next_++;
      if (ending_ || i >= wanted_.size()) return;
      const int fd = ::open(paths_[wanted_[i]].c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      [[maybe_unused]] const auto n = ::pread(fd, header.data(), header.size(), 0);
      ::close(fd);
    }
  }

  const std::vector<std::string>& paths_;
  const std::vector<std::size_t> wanted_;
  std::counting_semaphore<> room_{headers_ahead};
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> ending_{false};
  std::size_t done_ = 0;
  std::vector<std::jthread> threads_;
};

class Progress {
 public:
  explicit Progress(std::size_t files) : files_(files) {}
  void at(std::size_t file, std::size_t read) {
    if (Clock::now() - told_ < std::chrono::seconds(2)) return;
    told_ = Clock::now();
    log::info(cat("listing the data: ", file, " of ", files_, " files, ", read, " headers read"));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  const std::size_t files_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point told_ = began_;
};

void warn_of_twice(std::vector<std::string> files) {
  std::sort(files.begin(), files.end());
  const auto twice = std::adjacent_find(files.begin(), files.end());
  if (twice != files.end()) log::info(cat("warning: ", *twice, " is named more than once: its samples count as often"));
}

std::vector<std::string> list_files(const DataOptions& options, IndexingWatchdog& watch) {
  std::vector<std::string> out;
  for (const std::string& pattern : options.paths) {
    watch.at(pattern);
    auto files = expand_glob(pattern);
    if (files.empty()) fail(Exit::data, "'", pattern, "' matches no file. see the path, or pack the data first");
    out.insert(out.end(), std::make_move_iterator(files.begin()), std::make_move_iterator(files.end()));
  }
  if (options.paths.size() > 1) warn_of_twice(out);
  return out;
}

// Of one file. What fails by an error of the file system that may pass is tried again, as reads in training are.
ShardIndex scan_patiently(const std::string& path, const DataOptions& options, const ShardIndex& before) {
  constexpr double nap = 0.01;
  double delay = options.faults.retry_delay;
  for (int tries = options.faults.retries;; --tries) try {
      return options.view.sample != SampleKind::rows ? scan_view(path, options) : scan_file(path, options, before);
    } catch (const Error& e) {
      if (tries <= 0 || !is_transient(system_error_of(e))) throw;
      if (tries == options.faults.retries) log::local(cat("warning: ", e.what(), ". tried again"));
      for (double left = delay; left > 0; left -= nap)  // StartWatch takes a thread that sleeps long for one that waits
        std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, nap)));
      delay = std::min(2 * delay, max_retry_delay);
    }
}

// Of a file that is not known. Adds it to the cache, where there is one.
void scan_one(ShardIndex& out, const std::string& path, const DataOptions& options, const FileStamp& stamp,
              std::optional<ManifestCache>& cache) {
  try {
    const ShardIndex one = scan_patiently(path, options, out);
    if (one.rows == 0) return;
    append_shard(out, one, one.shards.front());
    if (cache) cache->add(out.shards.back(), one, stamp);
  } catch (const Error& e) {
    fail(e.code(), e.what(), being_written(path, e.what()));
  }
}

}  // namespace

ShardIndex scan_shards(const DataOptions& options) {
  ShardIndex out;
  out.x.name = options.x, out.y.name = options.y, out.decode = options.decode;
  IndexingWatchdog watch(options.faults);
  const std::vector<std::string> paths = list_files(options, watch);
  Progress progress(paths.size());
  std::optional<ManifestCache> cache;
  const bool rows = options.view.sample == SampleKind::rows;  // what cuts them is not in the cache
  if (rows && options.manifest_cache && paths.size() >= many_files) cache.emplace(options, paths.front());
  const std::vector<FileStamp> stamps = cache ? stamps_of(paths) : std::vector<FileStamp>(paths.size());
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (!cache || !cache->find(paths[i], stamps[i])) unknown.push_back(i);
  HeaderPrefetcher ahead(paths, unknown);
  const ShardIndex* agreed = nullptr;  // what the last file said: nothing new where the next says the same
  std::size_t read = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    progress.at(i, read);
    if (read < unknown.size() && unknown[read] == i) {
      watch.at(paths[i]);
      scan_one(out, paths[i], options, stamps[i], cache);
      ahead.done_with_one();
      ++read;
      continue;
    }
    const ManifestCache::CachedShard known = *cache->find(paths[i], stamps[i]);
    if (known.metadata == agreed) {
      Shard shard = known.shard;
      shard.first = out.rows;
      out.rows += shard.rows;
      out.shards.push_back(shard);
    } else {
      append_shard(out, *known.metadata, known.shard);
      agreed = known.metadata;
    }
    cache->add(known, stamps[i]);
  }
  if (out.rows == 0)
    fail(Exit::data, "the data set has no rows (", paths.front(), paths.size() > 1 ? ", ..." : "", ")",
         no_samples_reason(options));
  constexpr std::int64_t most_classes = 1 << 24;
  if (out.y.labels && !out.samples_are_views() && out.classes.count > std::max(most_classes, out.rows))
    fail(Exit::data, paths.front(), paths.size() > 1 ? ", ..." : "", ": '", options.y, "' holds the label ",
         out.classes.count - 1, ", the data set has ", out.rows,
         " rows. number the classes from 0; or store targets of a regression as floating point");
  if (cache && read > 0) {
    const std::string where = cache->save();
    if (!where.empty() && progress.seconds() > 2)
      log::info(cat("listing the data: ", read, " headers read in ", format_seconds(progress.seconds()),
                    "; the next start finds them in ", where));
  }
  std::string manifest = cat(out.sample.str(), name_of(out.x.dtype), out.x.channels_first ? " channels first" : "",
                             out.encoded() ? " encoded" : "");
  for (const auto* parts : {&out.x.parts, &out.y.parts})
    for (const ConcatenatedPart& part : *parts) manifest += cat(" ", part.name, " ", part.count);
  for (const Shard& s : out.shards) {
    const std::string path = s.path;
    manifest += cat("\n", std::string_view(path).substr(path.rfind('/') + 1), " ", s.rows, " ", s.file_bytes);
  }
  out.manifest_crc = crc32(manifest.data(), manifest.size());
  return out;
}

}  // namespace millrace
