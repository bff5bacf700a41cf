#include "data/cache/local_cache.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "data/cache/cache_file.hpp"
#include "millrace/base/host_memory.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/units.hpp"
#include "millrace/comm/node_memory.hpp"
#include "millrace/data/cache/shm_folder.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr double reserve = 0.05;                         // part of a file system or the memory that stays free
constexpr std::chrono::milliseconds poll_interval(100);  // for copies by other ranks and runs

// State in memory that all ranks of a node share. Zeros are its valid initial state.
struct SharedProgress {
  std::atomic<std::uint64_t> bytes;    // of copies that exist or are being made
  std::atomic<std::uint32_t> stopped;  // 1: no more files are copied
  std::atomic<std::uint32_t> gone;     // ranks that have destroyed their cache
};
struct SharedShardState {
  std::atomic<std::uint16_t> state;   // a State
  std::atomic<std::uint16_t> opened;  // number of ranks that hold the copy open
};
enum State : std::uint16_t { unknown, staged, at_source };
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint16_t>::is_always_lock_free);

struct Space {
  std::uint64_t free = 0, total = 0;
};
Space space_in(const std::string& folder, bool in_memory) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return {};
  Space out{std::uint64_t(status.f_bavail) * status.f_frsize, std::uint64_t(status.f_blocks) * status.f_frsize};
  if (!in_memory) return out;
  const HostMemory memory = host_memory();
  return {std::min<std::uint64_t>(out.free, memory.available), std::min<std::uint64_t>(out.total, memory.total)};
}

}  // namespace

struct LocalCache::Impl {
  const ShardIndex index;
  const bool in_memory;
  const int local_rank, local_size;
  const std::uint64_t budget;
  std::string folder;
  int lock = -1;
  NodeMemory memory;
  std::shared_ptr<LocalCopies> copies;
  bool holds_open = false;  // copies in memory: every rank keeps them open, and their names are removed
  std::uint64_t set_bytes = 0;
  std::atomic<std::uint64_t> made_bytes{0}, reused_bytes{0}, adopted{0}, adopted_bytes{0};
  std::atomic<bool> ending{false};
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::string why_stopped;
  std::once_flag started;
  std::thread thread;

  Impl(World& world, const ShardIndex& i, const LocalCacheOptions& o)
      : index(i),
        in_memory(o.where == "memory"),
        local_rank(world.local_rank()),
        local_size(world.local_size()),
        budget(o.budget) {
    std::string leader_folder, problem;
    if (local_rank == 0)
      problem = message_of([&] {
        if (in_memory) {
          remove_stale_shm_folders();
          leader_folder = new_shm_folder_name();
          lock = create_shm_folder(leader_folder);
        } else {
          leader_folder = cache_folder(o.where);
          fs::create_directories(leader_folder);
          if (::access(leader_folder.c_str(), W_OK | X_OK) != 0)
            fail(Exit::config, "cannot write to {} ({})", leader_folder, std::strerror(errno));
        }
      });
    if (!problem.empty())
      problem = fmt::format("data.cache = {}: {}. name a folder that is local to the node, or none", o.where, problem);
    world.agree(Exit::config, problem);
    for (const std::string& one : world.gather(fmt::format("{} {}", world.node(), leader_folder)))
      if (const std::string mine = fmt::format("{} ", world.node()); one.starts_with(mine) && one.size() > mine.size())
        folder = one.substr(mine.size());
    if (in_memory) use_shm_folder(folder);
    memory = node_memory(world, sizeof(SharedProgress) + index.shards.size() * sizeof(SharedShardState));
    copies = std::make_shared<LocalCopies>(index.shards, folder);
    for (const Shard& s : index.shards) set_bytes += s.file_bytes;
    if (!memory.shared) {
      why_stopped = "/dev/shm has no space for the shared state of the node's ranks";
      progress().stopped = 1;
      log::warn(fmt::format("data.cache: nothing is copied ({})", why_stopped));
    }
    const std::size_t needed = 3 * index.shards.size();
    holds_open = in_memory && memory.shared && raise_open_file_limit(needed) >= needed;
  }

  ~Impl() {
    {
      const std::lock_guard hold(mutex);
      ending = true;
    }
    wake.notify_all();
    if (thread.joinable()) thread.join();
    const bool last = !memory.shared || int(progress().gone.fetch_add(1)) + 1 == local_size;
    forget_shm_folder(folder, last);
    if (lock >= 0) ::close(lock);
  }

  SharedProgress& progress() const { return *reinterpret_cast<SharedProgress*>(memory.data.get()); }
  SharedShardState& shard_state(std::size_t s) const {
    return reinterpret_cast<SharedShardState*>(memory.data.get() + sizeof(SharedProgress))[s];
  }

  void run(const std::function<void(std::size_t)>& reopen) {
    std::deque<std::size_t> mine;
    for (std::size_t s = std::size_t(local_rank); s < index.shards.size(); s += std::size_t(local_size))
      mine.push_back(s);
    std::vector<bool> settled(index.shards.size());
    std::size_t unsettled = index.shards.size(), busy = 0;
    while (!ending) {
      for (std::size_t s = 0; s < settled.size() && !ending; ++s) {
        if (settled[s]) continue;
        const auto state = shard_state(s).state.load(std::memory_order_acquire);
        if (state == unknown) continue;
        if (state == staged) adopt(s, reopen);
        settled[s] = true;
        --unsettled;
      }
      if (unsettled == 0) return;
      if (progress().stopped) {
        for (const std::size_t s : mine) shard_state(s).state = at_source;
        mine.clear();
      }
      if (mine.empty() || busy >= mine.size()) {  // only copies that other ranks or runs are making are missing
        busy = 0;
        std::unique_lock hold(mutex);
        wake.wait_for(hold, poll_interval, [this] { return ending.load(); });
        if (mine.empty()) continue;
      }
      const std::size_t s = mine.front();
      mine.pop_front();
      if (copy_shard(s)) {
        busy = 0;
      } else {
        mine.push_back(s);
        ++busy;
      }
    }
  }

  // False: another process is copying this shard; try again later.
  bool copy_shard(std::size_t s) {
    const Shard shard = index.shards[s];
    const std::uint64_t bytes = shard.file_bytes;
    const std::uint64_t before = progress().bytes.fetch_add(bytes);
    if (budget > 0 && before + bytes > budget) {
      progress().bytes -= bytes;
      stop(s, fmt::format("data.cache_budget = {} holds {} of the {}", print_bytes(budget), format_bytes(before),
                          format_bytes(set_bytes)));
      return true;
    }
    CacheFileRequest r;
    r.source = fs::absolute(shard.path.str()).lexically_normal().string();
    r.copy = copies->path_in_folder(s);
    r.bytes = bytes;
    r.keep = !in_memory;
    r.ending = &ending;
    r.space_problem = [&](std::uint64_t wanted) -> std::string {
      const Space space = space_in(folder, in_memory);
      const auto kept = std::uint64_t(reserve * double(space.total));
      if (space.free >= wanted + kept) return "";
      return fmt::format("{} has {} free, of which {} must stay free", folder, format_bytes(space.free),
                         format_bytes(kept));
    };
    const CacheFileResult result = cache_file(r);
    if (result.kind == CacheFileResult::copied || result.kind == CacheFileResult::reused) {
      (result.kind == CacheFileResult::copied ? made_bytes : reused_bytes) += bytes;
      if (!result.why.empty()) log::local(fmt::format("warning: the copy {} was made again ({})", r.copy, result.why));
      shard_state(s).state.store(staged, std::memory_order_release);
      return true;
    }
    progress().bytes -= bytes;
    if (result.kind == CacheFileResult::full) stop(s, result.why);
    if (result.kind == CacheFileResult::source_failed) {
      log::local(fmt::format("warning: data.cache: {}. reading the source instead", result.why));
      shard_state(s).state = at_source;
    }
    return result.kind != CacheFileResult::busy;
  }

  void stop(std::size_t s, const std::string& why) {
    shard_state(s).state = at_source;
    if (progress().stopped.exchange(1)) return;
    const std::string line =
        fmt::format("no more files are copied to {} ({}): {} of {} are there, the rest is read from the source", folder,
                    why, format_bytes(progress().bytes), format_bytes(set_bytes));
    log::local("warning: data.cache: " + line);
    const std::lock_guard hold(mutex);
    why_stopped = why;
  }

  // The copy is complete: this rank reads from it from now on.
  void adopt(std::size_t s, const std::function<void(std::size_t)>& reopen) {
    const std::string path = copies->path_in_folder(s);
    if (holds_open) {
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd >= 0) {
        copies->keep_open(s, fd);
        if (shard_state(s).opened.fetch_add(1) + 1 == local_size) ::unlink(path.c_str());
      }
    }
    copies->use(s);
    try {
      reopen(s);
    } catch (const Error& e) {
      if (copies->abandon(s)) log::local(fmt::format("warning: data.cache: {}. reading the source instead", e.what()));
      return;
    }
    ++adopted;
    adopted_bytes += index.shards[s].file_bytes;
  }
};

LocalCache::LocalCache(World& world, const ShardIndex& index, const LocalCacheOptions& options)
    : impl_(std::make_unique<Impl>(world, index, options)) {}
LocalCache::~LocalCache() = default;

std::shared_ptr<LocalCopies> LocalCache::copies() const { return impl_->copies; }

void LocalCache::start(std::function<void(std::size_t)> reopen) {
  std::call_once(impl_->started, [&] {
    impl_->thread = std::thread([this, reopen = std::move(reopen)] {
      const std::string problem = message_of([&] { impl_->run(reopen); });
      if (!problem.empty()) log::local(fmt::format("warning: data.cache: no more files are copied ({})", problem));
    });
  });
}

std::string LocalCache::describe() const {
  const Impl& i = *impl_;
  const std::string limit = i.budget > 0 ? format_bytes(i.budget) : "what is free";
  return fmt::format("copies to {} ({} per node; at most {}, {} free here)", i.in_memory ? "memory" : i.folder,
                     format_bytes(i.set_bytes), limit, format_bytes(space_in(i.folder, i.in_memory).free));
}

LocalCacheStats LocalCache::stats() const {
  const Impl& i = *impl_;
  LocalCacheStats out;
  out.files = i.index.shards.size();
  out.files_staged = i.adopted;
  out.bytes = i.set_bytes;
  out.bytes_staged = i.adopted_bytes;
  out.bytes_copied = i.made_bytes;
  out.bytes_reused = i.reused_bytes;
  const std::lock_guard hold(i.mutex);
  out.stopped = i.why_stopped;
  return out;
}

}  // namespace millrace
