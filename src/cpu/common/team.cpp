#include "cpu/common/team.hpp"

#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <system_error>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace::cpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds, std::chrono::milliseconds;

thread_local int member_of_thread = 0;
thread_local bool thread_in_loop = false;
std::atomic<long> loop_count{0}, taken_over_count{0};

void pause_core() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Sleeps while `word` has this value, at most for a time. May return early.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds at_most) {
  static_assert(sizeof word == sizeof value);
  const timespec time{at_most.count() / 1'000'000'000, at_most.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, at_most.count() > 0 ? &time : nullptr, nullptr, 0);
}
void wake(std::atomic<std::uint32_t>& word, int threads) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// Returns whether done() within the time.
template <class Done>
bool spin(microseconds time, const Done& done) {
  const auto end = Clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause_core();
    }
  } while (Clock::now() < end);
  return false;
}

long preemptions() {
  rusage use{};
  ::getrusage(RUSAGE_THREAD, &use);
  return use.ru_nivcsw;
}

}  // namespace

// How long a thread spins before it sleeps. Waking takes a virtual machine 0.05 to 1 ms, so an idle core spins through
// the pauses between loops. On a core that others use too, spinning takes from the time in which the thread computes.
class Waiting {
 public:
  microseconds spin_time() {
    const auto now = Clock::now();
    if (now - checked_ > milliseconds(2)) {
      const long count = preemptions();
      if (count > preemptions_) shared_until_ = now + milliseconds(50);
      preemptions_ = count;
      checked_ = now;
    }
    return microseconds(now < shared_until_ ? 10 : 400);
  }

 private:
  long preemptions_ = 0;
  Clock::time_point checked_{}, shared_until_{};
};

Team::Team(int members) : parts_(std::size_t(members)), numbers_(std::size_t(members)) {
  try {
    for (int member = 1; member < members; ++member) threads_.emplace_back([this, member] { work(member); });
  } catch (const std::system_error& e) {
    end();
    fail(Exit::config, "cannot start {} threads to compute ({}). lower run.threads, or raise ulimit -u", members,
         e.code().message());
  }
}

Team::~Team() { end(); }

void Team::end() {
  ends_ = true;
  begun_.fetch_add(1);
  wake(begun_, INT_MAX);
  for (auto& thread : threads_) thread.join();
}

std::vector<int> Team::threads(int members) const {
  std::vector<int> out{::gettid()};
  for (int member = 1; member < members; ++member) {
    const std::atomic<int>& number = numbers_[std::size_t(member)];
    number.wait(0);
    out.push_back(number);
  }
  return out;
}

int Team::member() { return member_of_thread; }
int Team::set_member(int member) { return std::exchange(member_of_thread, member); }
bool Team::in_loop() { return thread_in_loop; }
ThreadStats Team::stats() { return {loop_count, taken_over_count}; }

void Team::publish(const Loop& loop) {
  if (++number_ == 0) ++number_;
  loop_ = loop;
  members_.store(loop.members, std::memory_order_relaxed);
  ended_.store(0, std::memory_order_relaxed);
  for (int m = 0; m < loop.members; ++m) {
    const auto first = std::uint64_t(loop.parts * m / loop.members),
               end = std::uint64_t(loop.parts * (m + 1) / loop.members);
    parts_[std::size_t(m)].unclaimed.store(std::uint64_t(number_) << 32 | first << 16 | end, std::memory_order_release);
  }
  begun_.store(number_);
  if (sleepers_.load() > 0) wake(begun_, 2);  // they wake others
}

void Team::run(const Loop& loop) {
  loop_count.fetch_add(1, std::memory_order_relaxed);
  publish(loop);
  thread_in_loop = true;
  const int own = claim_and_run(0, number_, loop.members);
  thread_in_loop = false;
  await_end(std::uint32_t(loop.parts - own));
}

void Team::await_end(std::uint32_t others) {
  const auto ended = [&] { return ended_.load(std::memory_order_acquire) == others; };
  if (spin(microseconds(200), ended)) return;
  caller_sleeps_ = true;
  // Each time this thread falls asleep, Linux looks for a waiting thread for its core: perhaps the one that is late.
  for (std::uint32_t count = ended_; count != others; count = ended_) sleep_on(ended_, count, microseconds(500));
  caller_sleeps_ = false;
}

bool Team::claim(Parts& parts, std::uint32_t loop, bool own, int& part) {
  std::uint64_t value = parts.unclaimed.load(std::memory_order_acquire);
  while (true) {
    const auto first = std::uint32_t(value >> 16 & 0xffff), end = std::uint32_t(value & 0xffff);
    if (value >> 32 != loop || first >= end) return false;
    // The owner claims from the front, others from the end, so neighbouring parts stay in the cache of one core.
    const std::uint64_t rest = own ? value + (1 << 16) : value - 1;
    if (!parts.unclaimed.compare_exchange_weak(value, rest, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    part = int(own ? first : end - 1);
    return true;
  }
}

// Returns how many parts this thread has run. Until the first is claimed, the loop may end at any time.
int Team::claim_and_run(int member, std::uint32_t loop, int members) noexcept {
  int count = 0, part = 0, taken = 0;
  for (int i = 0; i < members; ++i) {
    Parts& parts = parts_[std::size_t((member + i) % members)];
    while (claim(parts, loop, i == 0, part)) {
      if (member > 0 && count == 0) set_thread_count(loop_.threads);
      loop_.run(loop_.body, part);
      ++count;
      taken += i > 0;
      if (member == 0) continue;
      ended_.fetch_add(1);
      if (caller_sleeps_) wake(ended_, 1);
    }
  }
  if (taken > 0) taken_over_count.fetch_add(taken, std::memory_order_relaxed);
  return count;
}

// Waits for a loop after that with the number `seen`.
std::uint32_t Team::await_loop(std::uint32_t seen, Waiting& waiting) {
  const auto begun = [&] { return begun_.load(std::memory_order_acquire) != seen; };
  if (!spin(waiting.spin_time(), begun)) {
    sleepers_.fetch_add(1);
    while (begun_.load() == seen) sleep_on(begun_, seen, {});
    if (sleepers_.fetch_sub(1) > 1) wake(begun_, 2);
  }
  return begun_.load(std::memory_order_acquire);
}

void Team::work(int member) {
  member_of_thread = member;
  thread_in_loop = true;
  take_denormals_for_zero();
  numbers_[std::size_t(member)] = ::gettid();
  numbers_[std::size_t(member)].notify_one();
  Waiting waiting;
  std::uint32_t seen = 0;
  while (true) {
    seen = await_loop(seen, waiting);
    if (ends_) return;
    const int members = members_.load(std::memory_order_relaxed);
    if (member < members) claim_and_run(member, seen, members);
  }
}

}  // namespace millrace::cpu
