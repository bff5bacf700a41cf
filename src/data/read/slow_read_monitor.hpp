// Warns of reads that take too long, and ends the run after data.read_timeout. Each worker notes the file that it
// reads, by one store to its own memory and without a clock. A monitor thread looks at these notes; one that does not
// change for long is a slow read. Internal to data/.
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

// The reads in flight of one worker. Place 0 is for a read that the worker waits for, the other places are for reads
// that it has submitted.
class InFlightReads {
 public:
  static constexpr std::size_t count = 65;
  // Notes a read of the shard whose first sample is `first`. Returns the previous note of this place, for end().
  std::uint64_t begin(std::size_t place, std::int64_t first) {
    const std::uint64_t before = current_[place].load(std::memory_order_relaxed);
    current_[place].store(++reads_ << first_bits | std::uint64_t(first + 1), std::memory_order_relaxed);
    return before;
  }
  void end(std::size_t place, std::uint64_t before = 0) { current_[place].store(before, std::memory_order_relaxed); }
  // Mark the calls of the worker into a source. Outside of a call it waits for nothing, whatever is in flight.
  void enter() { inside_.store(++calls_, std::memory_order_relaxed); }
  void leave() { inside_.store(0, std::memory_order_relaxed); }
  // 0: outside; else the number of the call.
  std::uint64_t inside() const { return inside_.load(std::memory_order_relaxed); }
  std::uint64_t current_read(std::size_t place) const { return current_[place].load(std::memory_order_relaxed); }
  static std::int64_t first_of(std::uint64_t current_read) {  // the shard's first sample
    return std::int64_t(current_read & ((std::uint64_t(1) << first_bits) - 1)) - 1;
  }

 private:
  static constexpr int first_bits = 41;                      // there are up to 2^40 samples
  std::array<std::atomic<std::uint64_t>, count> current_{};  // 0: no read
  std::atomic<std::uint64_t> inside_{0};
  std::uint64_t reads_ = 0, calls_ = 0;
};

// The notes of the worker that this thread acts for at the moment; null: nothing is monitored.
inline constinit thread_local InFlightReads* in_flight_reads = nullptr;

// A scope: this thread is in a call of the worker that these notes belong to.
class WorkerReadScope {
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

// A scope, which can be nested: this thread waits for bytes of this file.
class ReadScope {
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
  std::vector<std::int64_t> slow() const;  // shards with a warning

 private:
  struct WatchedWorker {
    const InFlightReads* places;
    std::uint64_t inside = 0;
    std::array<std::uint64_t, InFlightReads::count> seen{};
    // Seconds since each place changed. Only time counts in which the monitor ran too, so a suspended process is not
    // slow.
    std::array<double, InFlightReads::count> unchanged_seconds{};
  };
  void run();
  void check(WatchedWorker&, double passed);

  const ShardIndex& index_;
  const double slow_seconds_, timeout_;
  mutable std::mutex mutex_;  // protects the members below
  std::condition_variable wake_;
  std::vector<WatchedWorker> watched_;
  std::vector<bool> warned_;  // by shard
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace millrace
