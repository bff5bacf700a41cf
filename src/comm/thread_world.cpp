// Ranks as threads of one process, for tests and sanitizers, without MPI. In every call, the ranks synchronize and
// exchange pointers through one shared table.
#include "comm/thread_world.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "millrace/comm/world.hpp"

namespace millrace {

ThreadRendezvous::ThreadRendezvous(int size) : size(size), slots(std::size_t(size)) {}

void ThreadRendezvous::wait() {
  std::unique_lock lock(mutex);
  if (broken) fail(Exit::comm, "another rank failed");
  const std::uint64_t mine = generation;
  if (++arrived == size) {
    arrived = 0;
    ++generation;
    all_here.notify_all();
    return;
  }
  all_here.wait(lock, [&] { return generation != mine || broken; });
  if (generation == mine) fail(Exit::comm, "another rank failed");
}

void ThreadRendezvous::abort_waits() {
  const std::lock_guard lock(mutex);
  broken = true;
  all_here.notify_all();
}

namespace {

class ThreadWorld : public World {
 public:
  ThreadWorld(std::shared_ptr<ThreadRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return rendezvous_->size; }
  int node() const override { return 0; }
  int node_count() const override { return 1; }
  const std::string& host() const override { return rendezvous_->host; }
  void barrier() override { rendezvous_->wait(); }

  void broadcast(void* data, std::size_t bytes, int root) override {
    rendezvous_->slots[std::size_t(rank_)] = data;
    rendezvous_->wait();
    if (rank_ != root) std::memcpy(data, rendezvous_->slots[std::size_t(root)], bytes);
    rendezvous_->wait();
  }
  void all_reduce(std::span<double> values, Reduce op) override { reduce(values, op); }
  void all_reduce(std::span<std::int64_t> values, Reduce op) override { reduce(values, op); }
  std::vector<std::string> gather(const std::string& mine) override {
    rendezvous_->slots[std::size_t(rank_)] = const_cast<std::string*>(&mine);
    rendezvous_->wait();
    std::vector<std::string> all;
    for (const void* s : rendezvous_->slots) all.push_back(*static_cast<const std::string*>(s));
    rendezvous_->wait();
    return all;
  }
  [[noreturn]] void abort(int exit_code) override {
    rendezvous_->abort_waits();
    throw Error(Exit(exit_code), "aborted");
  }
  const void* mpi_comm() const override { return nullptr; }
  std::unique_ptr<World> duplicate() override {
    std::shared_ptr<ThreadRendezvous> fresh;
    if (rank_ == 0) fresh = std::make_shared<ThreadRendezvous>(rendezvous_->size);
    rendezvous_->slots[std::size_t(rank_)] = &fresh;
    rendezvous_->wait();
    if (rank_ != 0) fresh = *static_cast<std::shared_ptr<ThreadRendezvous>*>(rendezvous_->slots[0]);
    rendezvous_->wait();
    return std::make_unique<ThreadWorld>(fresh, rank_);
  }

 private:
  template <class T>
  void reduce(std::span<T> values, Reduce op) {
    std::vector<T> mine(values.begin(), values.end());
    rendezvous_->slots[std::size_t(rank_)] = mine.data();
    rendezvous_->wait();
    for (std::size_t i = 0; i < values.size(); ++i) {
      T sum = static_cast<T*>(rendezvous_->slots[0])[i];
      for (int r = 1; r < rendezvous_->size; ++r) {
        const T other = static_cast<T*>(rendezvous_->slots[std::size_t(r)])[i];
        sum = op == Reduce::sum ? sum + other : op == Reduce::min ? std::min(sum, other) : std::max(sum, other);
      }
      values[i] = sum;
    }
    rendezvous_->wait();
  }
  std::shared_ptr<ThreadRendezvous> rendezvous_;
  int rank_;
};

}  // namespace

void run_thread_world(int size, const std::function<void(World&)>& body) {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(size);
  std::mutex first_mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        ThreadWorld world(rendezvous, r);
        body(world);
      } catch (...) {
        {
          const std::lock_guard lock(first_mutex);
          if (!first) first = std::current_exception();
        }
        rendezvous->abort_waits();
      }
    });
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace millrace
