#include "app/failure.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>

#include "millrace/data/cache/shm_folder.hpp"
#include "millrace/system/first_report.hpp"

namespace millrace::app {
namespace {

// Rank 0 of two ranks. gather() returns `answer` for the other rank, throws if it is "throws", or never returns if it
// is empty.
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
    if (answer_ == "throws") fail(Exit::comm, "the other rank does not answer");
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

enum class Exhausted { nothing, threads, memory, files };

void take_all_memory() {
  rlimit none{1, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &none);
  for (std::size_t bytes = 1 << 24; bytes >= 8; bytes /= 2)
    while (void* volatile taken = std::malloc(bytes)) (void)taken;
}

// Runs a command that throws `thrown`.
template <class Thrown>
void run(std::unique_ptr<World> world, const Thrown& thrown, Exhausted exhausted = Exhausted::nothing) {
  end_all_ranks_on_failure(std::move(world));
  if (exhausted == Exhausted::threads) {  // a stack size that no thread can get
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t(1) << 50);
    pthread_setattr_default_np(&attributes);
  }
  if (exhausted == Exhausted::memory) take_all_memory();
  if (exhausted == Exhausted::files) {
    rlimit few{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  [&]() noexcept { [&] { throw thrown; }(); }();
}

const Error disk(Exit::data, "the disk is gone");
auto code(Exit value) { return testing::ExitedWithCode(int(value)); }

TEST(Failure, OfAllRanksIsReportedOnce) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("3 the disk is gone"), disk), code(Exit::data),
              "^error: the disk is gone\n$");
  EXPECT_EXIT(run(solo_world(), disk), code(Exit::data), "^error: the disk is gone\n$");
}

TEST(Failure, OfAllRanksForSeveralReasonsIsOneLine) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("3 the file is gone"), disk), code(Exit::data),
              "^error: the disk is gone .and another error on 1 of 2 ranks.\n$");
}

TEST(Failure, OfOneRankEndsAllRanks) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("throws"), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
}

TEST(Failure, OfSeveralRanksIsReportedByOneOfThem) {
  ::setenv("PMIX_NAMESPACE", ("test-" + std::to_string(::getpid())).c_str(), 1);
  EXPECT_TRUE(claim_report_of_host());  // until this process ends
  EXPECT_FALSE(claim_report_of_host());
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk), code(Exit::data), "^all ranks aborted\n$");
  ::unsetenv("PMIX_NAMESPACE");
  EXPECT_TRUE(claim_report_of_host());
}

TEST(Failure, LeavesNoCopiesInSharedMemory) {
  for (const auto exhausted : {Exhausted::nothing, Exhausted::files}) {
    const std::string folder = new_shm_folder_name();
    const int lock = create_shm_folder(folder);
    use_shm_folder(folder);
    EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk, exhausted), code(Exit::data), "the disk is gone");
    EXPECT_FALSE(std::filesystem::exists(folder));
    forget_shm_folder(folder, false);
    ::close(lock);
  }
}

TEST(Failure, KeepsMessageAndCodeIfNoThreadCanStart) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("3 the disk is gone"), disk, Exhausted::threads), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
}

TEST(Failure, KeepsMessageAndCodeIfMemoryIsExhausted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the program themselves if memory is exhausted";
#endif
  const char* message =
      "^error: out of memory. lower train.micro_batch, data.prefetch or the number of ranks on a host\n";
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), std::bad_alloc(), Exhausted::memory), code(Exit::internal), message);
  EXPECT_EXIT(run(solo_world(), std::bad_alloc(), Exhausted::memory), code(Exit::internal), message);
}

TEST(Failure, OfAnUnknownTypeIsReportedAsSuch) {
  EXPECT_EXIT(run(solo_world(), 7), code(Exit::internal), "^error: terminated by an exception of unknown type\n$");
}

}  // namespace
}  // namespace millrace::app
