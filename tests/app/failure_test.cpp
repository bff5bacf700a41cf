#include "app/failure.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>

namespace millrace::app {
namespace {

// Rank 0 of two. In gather() the other one answers what it is told to, or never.
class TwoRanks : public World {
 public:
  explicit TwoRanks(std::string answer = "") : answer_(std::move(answer)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 2; }
  int node() const override { return 0; }
  int node_count() const override { return 1; }
  const std::string& host() const override { return host_; }
  void barrier() override {}
  void broadcast(void*, std::size_t, int) override {}
  void all_reduce(std::span<double>, Reduce) override {}
  void all_reduce(std::span<std::int64_t>, Reduce) override {}
  std::vector<std::string> gather(const std::string& mine) override {
    if (answer_ == "throws") fail(Exit::comm, "no word from the other rank");
    if (answer_.empty()) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable().wait(lock, [] { return false; });
    }
    return {mine, answer_};
  }
  [[noreturn]] void abort(int exit_code) override {
    [[maybe_unused]] const auto done = ::write(STDERR_FILENO, "all ranks aborted\n", 18);
    std::_Exit(exit_code);
  }
  const void* mpi_comm() const override { return nullptr; }
  std::unique_ptr<World> duplicate() override { return std::make_unique<TwoRanks>(answer_); }

 private:
  std::string host_ = "here", answer_;
};

enum class Lack { nothing, threads, memory };

void take_all_memory() {
  rlimit none{1, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &none);
  for (std::size_t bytes = 1 << 24; bytes >= 8; bytes /= 2)
    while (void* volatile taken = std::malloc(bytes)) (void)taken;
}

// A run in which `thrown` leaves the command.
template <class Thrown>
void run(std::unique_ptr<World> world, const Thrown& thrown, Lack lack = Lack::nothing) {
  end_all_ranks_on_failure(std::move(world));
  if (lack == Lack::threads) {  // a stack that no thread can have
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t(1) << 50);
    pthread_setattr_default_np(&attributes);
  }
  if (lack == Lack::memory) take_all_memory();
  [&]() noexcept { [&] { throw thrown; }(); }();
}

const Error disk(Exit::data, "the disk is gone");
auto code(Exit value) { return testing::ExitedWithCode(int(value)); }

TEST(Failure, OfAllRanksIsSaidOnce) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("3 the disk is gone"), disk), code(Exit::data),
              "^error: the disk is gone\n$");
  EXPECT_EXIT(run(solo_world(), disk), code(Exit::data), "^error: the disk is gone\n$");
}

TEST(Failure, OfOneRankEndsTheOthers) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("throws"), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
}

TEST(Failure, WithoutAThreadLeftKeepsMessageAndCode) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("3 the disk is gone"), disk, Lack::threads), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
}

TEST(Failure, WithoutMemoryLeftKeepsMessageAndCode) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the program themselves when memory is short";
#endif
  const char* words =
      "^error: out of memory. lower train.micro_batch, data.prefetch or the number of ranks on a host\n";
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), std::bad_alloc(), Lack::memory), code(Exit::internal), words);
  EXPECT_EXIT(run(solo_world(), std::bad_alloc(), Lack::memory), code(Exit::internal), words);
}

TEST(Failure, OfUnknownTypeIsNamedAsSuch) {
  EXPECT_EXIT(run(solo_world(), 7), code(Exit::internal), "^error: terminated by an exception of unknown type\n$");
}

}  // namespace
}  // namespace millrace::app
