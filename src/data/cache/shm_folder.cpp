#include "millrace/data/cache/shm_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

const char* const shm = "/dev/shm";
constexpr std::chrono::seconds min_age(60);  // a run may not have locked a younger folder yet

std::string prefix() { return fmt::format("millrace-cache-{}-", int(::getuid())); }
int open_lock(const fs::path& folder) { return ::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }

// Each folder is held open: a process that may open no more files can still remove what is in it.
std::mutex used_mutex;
std::multimap<std::string, DIR*> used;  // ranks that are threads use one folder

void remove_folder(const std::string& folder, DIR* opened) {
  if (opened) {
    ::rewinddir(opened);
    while (const dirent* entry = ::readdir(opened)) ::unlinkat(::dirfd(opened), entry->d_name, 0);
  }
  ::rmdir(folder.c_str());
}

}  // namespace

std::string new_shm_folder_name() {
  static std::atomic<unsigned> made{0};
  return fmt::format("{}/{}{}-{}", shm, prefix(), int(::getpid()), made++);
}

int create_shm_folder(const std::string& folder) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  const int lock = open_lock(folder);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0)
    fail(Exit::config, "cannot lock {}/lock ({})", folder, std::strerror(errno));
  return lock;
}

void remove_stale_shm_folders() {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(shm, none)) {
    if (!entry.path().filename().string().starts_with(prefix())) continue;
    if (fs::file_time_type::clock::now() - entry.last_write_time(none) < min_age || none) continue;
    const int lock = open_lock(entry.path());
    if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), none);
    if (lock >= 0) ::close(lock);
  }
}

void use_shm_folder(const std::string& folder) {
  const std::lock_guard hold(used_mutex);
  used.emplace(folder, ::opendir(folder.c_str()));
}

void forget_shm_folder(const std::string& folder, bool remove) {
  const std::lock_guard hold(used_mutex);
  const auto found = used.find(folder);
  if (found == used.end()) return;
  if (remove) remove_folder(folder, found->second);
  if (found->second) ::closedir(found->second);
  used.erase(found);
}

void remove_used_shm_folders() noexcept {
  try {
    const std::unique_lock hold(used_mutex, std::try_to_lock);
    if (hold.owns_lock())
      for (const auto& [folder, opened] : used) remove_folder(folder, opened);
  } catch (...) {  // no memory is left: a later run removes them
  }
}

}  // namespace millrace
