#include "millrace/comm/node_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "comm/shm_capacity.hpp"

namespace millrace {
namespace {

constexpr std::size_t worth_sharing = 64u << 10, piece_bytes = 4u << 20;

std::shared_ptr<char> mapped(int fd, std::size_t bytes) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) return nullptr;
  return {static_cast<char*>(at), [bytes](char* p) { ::munmap(p, bytes); }};
}

std::shared_ptr<char> own_memory(std::size_t bytes) {
  auto data = mapped(-1, bytes);
  if (!data) fail(Exit::comm, "cannot allocate {} bytes of memory ({})", bytes, std::strerror(errno));
  return data;
}

struct SharedFile {
  int fd = -1;
  ~SharedFile() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

NodeMemory node_memory(World& world, std::size_t bytes) {
  static std::atomic<unsigned> made{0};
  bytes = std::max<std::size_t>(1, bytes);
  const std::size_t of_rank = (bytes + std::size_t(world.local_size()) - 1) / std::size_t(world.local_size());
  if (!fits_in_shared_memory(world, of_rank)) return {own_memory(bytes), bytes, world.local_size() == 1};
  const bool leads = world.local_rank() == 0;
  std::string name;
  SharedFile file;
  if (leads) {
    name = fmt::format("/millrace-{}-{}-{}", int(::getpid()), world.node(), made++);
    file.fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file.fd < 0 || ::posix_fallocate(file.fd, 0, off_t(bytes)) != 0) {
      if (file.fd >= 0) ::shm_unlink(name.c_str());
      name.clear();
    }
  }
  std::string of_host;
  for (const std::string& one : world.gather(fmt::format("{} {}", world.node(), name)))
    if (const std::string mine = fmt::format("{} ", world.node()); one.starts_with(mine) && one.size() > mine.size())
      of_host = one.substr(mine.size());
  if (!leads && !of_host.empty()) file.fd = ::shm_open(of_host.c_str(), O_RDWR, 0);
  NodeMemory out{!of_host.empty() && file.fd >= 0 ? mapped(file.fd, bytes) : nullptr, bytes, true};
  std::int64_t fine = out.data != nullptr;
  world.all_reduce(std::span<std::int64_t>(&fine, 1), World::Reduce::min);
  if (!name.empty()) ::shm_unlink(name.c_str());
  if (!fine) return {own_memory(bytes), bytes, world.local_size() == 1};
  return out;
}

NodeMemory node_copy(World& world, const std::string& text) {
  std::uint64_t bytes = text.size();
  world.broadcast(&bytes, sizeof bytes, 0);
  NodeMemory out = bytes < worth_sharing ? NodeMemory{own_memory(std::max<std::size_t>(1, bytes)), bytes, false}
                                         : node_memory(world, bytes);
  out.bytes = bytes;
  std::string piece;
  for (std::size_t at = 0; at < bytes; at += piece_bytes) {
    const std::size_t n = std::min<std::size_t>(piece_bytes, bytes - at);
    if (world.rank() == 0) piece = text.substr(at, n);
    piece.resize(n);
    world.broadcast(piece.data(), n, 0);
    if (!out.shared || world.local_rank() == 0) std::memcpy(out.data.get() + at, piece.data(), n);
  }
  world.barrier();  // until here, the leader of a host may still write to the shared copy
  return out;
}

}  // namespace millrace
