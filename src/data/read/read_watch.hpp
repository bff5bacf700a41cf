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
class ReadPlaces {
 public:
  static constexpr std::size_t count = 65;
  // Returns what was noted there before.
  std::uint64_t begin(std::size_t place, std::int64_t first) {  // sample of the shard
    const std::uint64_t before = noted_[place].load(std::memory_order_relaxed);
    noted_[place].store(++reads_ << first_bits | std::uint64_t(first + 1), std::memory_order_relaxed);
    return before;
  }
  void end(std::size_t place, std::uint64_t before = 0) { noted_[place].store(before, std::memory_order_relaxed); }
  // A worker outside of calls waits for nothing, whatever is under way. 0: outside; else the number of the call.
  void enter() { inside_.store(++calls_, std::memory_order_relaxed); }
  void leave() { inside_.store(0, std::memory_order_relaxed); }
  std::uint64_t inside() const { return inside_.load(std::memory_order_relaxed); }
  std::uint64_t noted(std::size_t place) const { return noted_[place].load(std::memory_order_relaxed); }
  static std::int64_t first_of(std::uint64_t noted) {  // the shard's first sample
    return std::int64_t(noted & ((std::uint64_t(1) << first_bits) - 1)) - 1;
  }

 private:
  static constexpr int first_bits = 41;                    // samplers number up to 2^40 samples
  std::array<std::atomic<std::uint64_t>, count> noted_{};  // 0: no read
  std::atomic<std::uint64_t> inside_{0};
  std::uint64_t reads_ = 0, calls_ = 0;
};

// Those of the worker that this thread is at the moment; null: nobody watches.
inline constinit thread_local ReadPlaces* read_places = nullptr;

class ReadsFor {  // a scope: a call
 public:
  explicit ReadsFor(ReadPlaces& places) : before_(read_places) {
    read_places = &places;
    places.enter();
  }
  ~ReadsFor() {
    read_places->leave();
    read_places = before_;
  }
  ReadsFor(const ReadsFor&) = delete;

 private:
  ReadPlaces* const before_;
};

class Reading {  // a scope, or several one inside the other: this thread waits for bytes of this file
 public:
  explicit Reading(const Shard& shard) : Reading(shard.first) {}
  explicit Reading(const ShardRange& shard) : Reading(shard.first) {}
  ~Reading() {
    if (places_) places_->end(0, before_);
  }
  Reading(const Reading&) = delete;

 private:
  explicit Reading(std::int64_t first) : places_(read_places), before_(places_ ? places_->begin(0, first) : 0) {}

  ReadPlaces* const places_;
  const std::uint64_t before_;
};

class ReadWatch {
 public:
  ReadWatch(const ShardIndex&, const FaultOptions&);  // the index outlives it
  ~ReadWatch();
  void add(const ReadPlaces&);
  void remove(const ReadPlaces&);
  std::vector<std::int64_t> slow() const;  // shards that were warned of

 private:
  struct Watched {
    const ReadPlaces* places;
    std::uint64_t inside = 0;
    std::array<std::uint64_t, ReadPlaces::count> seen{};
    std::array<double, ReadPlaces::count>
        lasts{};  // seconds, as far as this thread ran too: not while all were stopped
  };
  void run();
  void look(Watched&, double passed);

  const ShardIndex& index_;
  const double slow_seconds_, timeout_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<Watched> watched_;
  std::vector<bool> warned_;  // by shard
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace millrace
