// Which file each worker is reading, and a thread that looks whether it is still at it. Readers note it with one store
// to memory of their own, without a clock: what stands there unchanged for long is a slow read. Private to the data
// room.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Of one worker: place 0 for a read that it waits for, the others for reads under way.
class InFlightReads {
 public:
  static constexpr std::size_t count = 65;
  // Returns what was noted there before.
  std::uint64_t begin(std::size_t place, std::int64_t first) {  // sample of the shard
    const std::uint64_t before = current_[place].load(std::memory_order_relaxed);
    current_[place].store(++reads_ << first_bits | std::uint64_t(first + 1), std::memory_order_relaxed);
    return before;
  }
  void end(std::size_t place, std::uint64_t before = 0) { current_[place].store(before, std::memory_order_relaxed); }
  // A worker outside of calls waits for nothing, whatever is under way. 0: outside; else the number of the call.
  void enter() { inside_.store(++calls_, std::memory_order_relaxed); }
  void leave() { inside_.store(0, std::memory_order_relaxed); }
  std::uint64_t inside() const { return inside_.load(std::memory_order_relaxed); }
  std::uint64_t current_read(std::size_t place) const { return current_[place].load(std::memory_order_relaxed); }
  static std::int64_t first_of(std::uint64_t current_read) {  // the shard's first sample
    return std::int64_t(current_read & ((std::uint64_t(1) << first_bits) - 1)) - 1;
  }

 private:
  static constexpr int first_bits = 41;                      // samplers number up to 2^40 samples
  std::array<std::atomic<std::uint64_t>, count> current_{};  // 0: no read
  std::atomic<std::uint64_t> inside_{0};
  std::uint64_t reads_ = 0, calls_ = 0;
};

// Those of the worker that this thread is at the moment; null: nobody watches.
inline constinit thread_local InFlightReads* in_flight_reads = nullptr;

class WorkerReadScope {  // a scope: a call
 public:
  explicit WorkerReadScope(InFlightReads& places) : before_(in_flight_reads) {
    in_flight_reads = &places;
    places.enter();
  }
  ~WorkerReadScope() {
    in_flight_reads->leave();
    in_flight_reads = before_;
  }
  WorkerReadScope(const WorkerReadScope&) = delete;

 private:
  InFlightReads* const before_;
};

class ReadScope {  // a scope, or several one inside the other: this thread waits for bytes of this file
 public:
  explicit ReadScope(const Shard& shard) : ReadScope(shard.first) {}
  explicit ReadScope(const ShardRange& shard) : ReadScope(shard.first) {}
  ~ReadScope() {
    if (places_) places_->end(0, before_);
  }
  ReadScope(const ReadScope&) = delete;

 private:
  explicit ReadScope(std::int64_t first) : places_(in_flight_reads), before_(places_ ? places_->begin(0, first) : 0) {}

  InFlightReads* const places_;
  const std::uint64_t before_;
};

class SlowReadMonitor {
 public:
  SlowReadMonitor(const ShardIndex&, const FaultOptions&);  // the index outlives it
  ~SlowReadMonitor();
  void add(const InFlightReads&);
  void remove(const InFlightReads&);
  std::vector<std::int64_t> slow() const;  // shards that were warned of

 private:
  struct WatchedWorker {
    const InFlightReads* places;
    std::uint64_t inside = 0;
    std::array<std::uint64_t, InFlightReads::count> seen{};
    std::array<double, InFlightReads::count>
        unchanged_seconds{};  // seconds, as far as this thread ran too: not while all were stopped
  };
  void run();
  void check(WatchedWorker&, double passed);

  const ShardIndex& index_;
  const double slow_seconds_, timeout_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<WatchedWorker> watched_;
  std::vector<bool> warned_;  // by shard
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace millrace
