#include "app/failure.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>
#include <thread>

#include "millrace/data/cache/shm_folder.hpp"
#include "millrace/system/first_report.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace::app {
namespace failure_test {

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
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(" 3 the disk is gone"), disk), code(Exit::data),
              "^error: the disk is gone\n$");
  EXPECT_EXIT(run(solo_world(), disk), code(Exit::data), "^error: the disk is gone\n$");
}

TEST(Failure, OfAllRanksForSeveralReasonsIsOneLine) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(" 3 the file is gone"), disk), code(Exit::data),
              "^error: the disk is gone .and another error on 1 of 2 ranks.\n$");
}

TEST(Failure, OfOneRankEndsAllRanks) {
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("throws"), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
}

// Another process of the job that has the report of this host, or would have it on another host.
class OtherRank {
 public:
  OtherRank() {
    ::setenv("PMIX_NAMESPACE", ("test-" + std::to_string(::getpid())).c_str(), 1);
    int ready[2];
    MR_CHECK(::pipe(ready) == 0, "no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      char has = claim_report_of_host(Reporter::failure) ? '1' : '0';
      if (::write(ready[1], &has, 1) == 1) ::pause();
      ::_exit(0);
    }
    char has = '0';
    MR_CHECK(::read(ready[0], &has, 1) == 1 && has == '1', "the other process has no claim");
    for (const int end : ready) ::close(end);
  }
  ~OtherRank() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::unsetenv("PMIX_NAMESPACE");
    ::unsetenv("MILLRACE_TEST_RANKS_PER_HOST");
    ::unsetenv("PMIX_RANK");
  }

 private:
  pid_t pid_ = 0;
};

TEST(Failure, OfSeveralRanksIsReportedByOneOfThem) {
  const OtherRank other;
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk), code(Exit::data), "^all ranks aborted\n$");
  // All ranks failed: rank 0 reports it for the rank that was first.
  EXPECT_EXIT(run(std::make_unique<TwoRanks>("!3 the disk is gone"), disk), code(Exit::data),
              "^error: the disk is gone\n$");
  // The other process belongs to another host.
  ::setenv("MILLRACE_TEST_RANKS_PER_HOST", "1", 1);
  ::setenv("PMIX_RANK", "1", 1);
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(), disk), code(Exit::data),
              "^error: the disk is gone\nall ranks aborted\n$");
}

void claim_twice() {
  const bool first = claim_report_of_host(Reporter::failure), again = claim_report_of_host(Reporter::failure);
  std::_Exit(first && again && !claim_report_of_host(Reporter::watchdog) && !watchdog::claim_end() ? 0 : 1);
}

TEST(Failure, AClaimIsKept) {
  EXPECT_EXIT(claim_twice(), testing::ExitedWithCode(0), "");
  const OtherRank other;
  EXPECT_EXIT(claim_twice(), testing::ExitedWithCode(1), "");
  ::unsetenv("PMIX_NAMESPACE");  // each process counts as a host
  EXPECT_EXIT(claim_twice(), testing::ExitedWithCode(0), "");
}

// A rank that waits for a file longer than the timeout, and fails before or after the watchdog reports it.
void fail_late(bool after_watchdog) {
  watchdog::start(0.5);
  end_all_ranks_on_failure(std::make_unique<TwoRanks>());
  static std::atomic<bool> reported = false;
  watchdog::set_abort([] {
    reported = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  const watchdog::WaitScope waits(watchdog::Wait::file);
  while (after_watchdog && !reported)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // CPU time is progress
  [&]() noexcept { [&] { throw disk; }(); }();
}

TEST(Failure, AndTheWatchdogReportOnce) {
  EXPECT_EXIT(fail_late(false), code(Exit::data), "^error: the disk is gone\nall ranks aborted\n$");
  EXPECT_EXIT(fail_late(true), code(Exit::comm), "^error: rank 0 on .*file system[^\n]*\n$");
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
  EXPECT_EXIT(run(std::make_unique<TwoRanks>(" 3 the disk is gone"), disk, Exhausted::threads), code(Exit::data),
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

}  // namespace failure_test
}  // namespace millrace::app
