#include "data/index/local_copies.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// FNV-1a with 64 bits: no collisions are expected among a million paths.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001B3ull;
  return hash;
}

}  // namespace

std::string cache_folder(const std::string& where) {
  return std::filesystem::absolute(where).lexically_normal().string() + "/millrace-cache";
}

LocalCopies::LocalCopies(const ShardList& shards, std::string folder)
    : shards_(shards), folder_(std::move(folder)), state_(shards.size()), held_(shards.size()) {
  for (auto& fd : held_) fd.store(-1, std::memory_order_relaxed);
}

LocalCopies::~LocalCopies() {
  for (auto& fd : held_)
    if (fd >= 0) ::close(fd);
}

std::string LocalCopies::path_in_folder(std::size_t s) const {
  const std::filesystem::path source = std::filesystem::absolute(shards_[s].path.str()).lexically_normal();
  return fmt::format("{}/{:016x}-{}", folder_, hash_of(source.string()), source.filename().string());
}

std::string LocalCopies::path(std::size_t s) const {
  const int fd = held_[s];
  return fd >= 0 ? fmt::format("/proc/self/fd/{}", fd) : path_in_folder(s);
}

void LocalCopies::use(std::size_t s) {
  std::uint8_t none = at_source;
  state_[s].compare_exchange_strong(none, in_use);
}

void LocalCopies::keep_open(std::size_t s, int fd) { held_[s] = fd; }

bool LocalCopies::abandon(std::size_t s) {
  std::uint8_t used = in_use;
  return state_[s].compare_exchange_strong(used, left);
}

std::string path_to_read(const ShardIndex& index, std::size_t s) {
  return index.copies && index.copies->used(s) ? index.copies->path(s) : index.shards[s].path.str();
}

}  // namespace millrace
