// Progress of the operations of a HostCollective: waiting for the other ranks, execution, and the worker thread.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "comm/backoff.hpp"
#include "comm/host_collective.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

using Barrier = SharedMemory::Barrier;

// "1, 2, 5"; at most eight ranks, then "...".
std::string rank_list(const std::vector<int>& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) out += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  return out + (ranks.size() > 8 ? ", ..." : "");
}

std::string name_of(const Operation& op) {
  return fmt::format("{}{}",
                     op.span.op == CollectiveOp::all_gather       ? "all-gather "
                     : op.span.op == CollectiveOp::reduce_scatter ? "reduce-scatter "
                                                                  : "all-reduce ",
                     op.span.tag);
}

}  // namespace

bool HostCollective::all_reached(Counter counter, std::uint64_t value) const {
  return std::all_of(boards_.begin(), boards_.end(),
                     [&](const RankCounters* b) { return (b->*counter).load(std::memory_order_acquire) >= value; });
}

void HostCollective::fail_waiting(const std::string& what, const std::string& who) const {
  fail(Exit::comm, "waited {:g} s for {} ({}). find out what caused the delay, or raise comm.timeout",
       options_.timeout_seconds, what, who);
}

void HostCollective::fail_late(const std::string& what, Counter counter, std::uint64_t value) const {
  std::vector<int> late;
  for (std::size_t r = 0; r < boards_.size(); ++r)
    if ((boards_[r]->*counter).load() < value) late.push_back(near_ranks_[r]);
  fail_waiting(what, fmt::format("late: rank {} on {}", rank_list(late), world_.host()));
}

void HostCollective::fail_far(const std::string& what) const { fail_waiting(what, "waiting inside MPI"); }

bool HostCollective::await(const Operation& op) {
  Backoff backoff(options_.timeout_seconds);
  while (!all_reached(&RankCounters::begun, executed_ + 1)) {
    if (ending_) return false;
    if (!backoff.wait()) fail_late(name_of(op), &RankCounters::begun, executed_ + 1);
  }
  SharedMemory& memory = *op.region->memory;
  if (memory.one_host) return true;
  backoff.spin_again();
  while (!memory.barrier_passed(Barrier::operation)) {
    if (ending_) return false;
    if (!backoff.wait()) fail_far(name_of(op));
  }
  return true;
}

void HostCollective::complete(std::uint64_t number) {
  const watchdog::WaitScope waits(watchdog::Wait::all_reduce);
  if (worker_.joinable())
    await_worker(number);
  else
    while (executed_ < number) {
      await(queue_.front());
      run_front();
    }
  Backoff backoff(options_.timeout_seconds);
  while (!all_reached(&RankCounters::done, number))
    if (!backoff.wait()) {
      const std::string what = "other ranks to finish a step's collectives";
      if (memory_->one_host) fail_late(what, &RankCounters::done, number);
      fail_far(what);  // the ranks of this host may be waiting for those of another one
    }
}

void HostCollective::run_front(bool blocking) {
  Operation op;
  {
    const std::lock_guard lock(mutex_);
    op = queue_.front();
  }
  op.span.started = steady_seconds();
  executor_.run(op);
  if (options_.delay_seconds_per_mb > 0)
    std::this_thread::sleep_for(
        std::chrono::duration<double>(options_.delay_seconds_per_mb * double(op.span.bytes) * 1e-6));
  op.span.ended = steady_seconds();
  op.span.blocking = blocking;
  mine_->done.store(++executed_, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  spans_.push_back(op.span);
  queue_.pop_front();
  ++finished_;
  advanced_.notify_all();
}

void HostCollective::start_worker() {
  if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
}

void HostCollective::serve() {
  try {
    for (;;) {
      Operation op;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return ending_ || (!queue_.empty() && (threaded_ || finishing_)); });
        if (ending_) return;
        op = queue_.front();
      }
      if (!await(op)) return;
      run_front();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    advanced_.notify_all();
  }
}

void HostCollective::await_worker(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  work_.notify_one();
  // The worker times out one second earlier, with a better message, unless it hangs in MPI.
  const std::chrono::duration<double> most(options_.timeout_seconds + 1);
  std::uint64_t before;
  do before = finished_;
  while (!advanced_.wait_for(lock, most, [&] { return finished_ >= number || failure_; }) && finished_ != before);
  finishing_ = false;
  if (failure_) std::rethrow_exception(failure_);
  if (finished_ >= number) return;
  stuck_ = true;
  const std::string what = name_of(queue_.front());
  lock.unlock();
  fail_far(what + ", inside MPI");
}

}  // namespace millrace
