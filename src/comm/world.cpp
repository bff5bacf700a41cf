#include "millrace/comm/world.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "millrace/base/log.hpp"

namespace millrace {
namespace {

class SoloWorld : public World {
 public:
  SoloWorld() {
    char name[256] = "localhost";
    ::gethostname(name, sizeof name - 1);
    host_ = name;
  }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  int node() const override { return 0; }
  int node_count() const override { return 1; }
  const std::string& host() const override { return host_; }
  void barrier() override {}
  void broadcast(void*, std::size_t, int) override {}
  void all_reduce(std::span<double>, Reduce) override {}
  void all_reduce(std::span<std::int64_t>, Reduce) override {}
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }
  const void* mpi_comm() const override { return nullptr; }
  std::unique_ptr<World> duplicate() override { return std::make_unique<SoloWorld>(); }

 private:
  std::string host_;
};

}  // namespace

std::timed_mutex& mpi_call_mutex() {
  static std::timed_mutex mutex;
  return mutex;
}

std::unique_ptr<World> solo_world() { return std::make_unique<SoloWorld>(); }

void World::agree(Exit code, const std::string& message) {
  const std::int64_t none = size();
  std::int64_t first = message.empty() ? none : rank();
  all_reduce(std::span<std::int64_t>(&first, 1), Reduce::min);
  if (first == none) return;
  std::int64_t agreed = std::int64_t(code);
  broadcast(&agreed, sizeof agreed, int(first));
  const std::string text =
      broadcast_string(first == 0 ? message : fmt::format("[rank {} @ {}] {}", first, host(), message), int(first));
  throw Error(Exit(agreed), text);
}

std::string World::broadcast_string(const std::string& mine, int root) {
  std::uint64_t length = mine.size();
  broadcast(&length, sizeof length, root);
  std::string text = rank() == root ? mine : std::string(length, '\0');
  if (length) broadcast(text.data(), length, root);
  return text;
}

}  // namespace millrace
