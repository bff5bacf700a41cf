// BusyClock: total time that all threads spend on one kind of work. Private to the data room.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace millrace {

class BusyClock {
 public:
  class Scope {
   public:
    explicit Scope(BusyClock& clock) : clock_(clock) {}
    ~Scope() {
      clock_.nanoseconds_.fetch_add((std::chrono::steady_clock::now() - began_).count(), std::memory_order_relaxed);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BusyClock& clock_;
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  };
  double seconds() const { return 1e-9 * double(nanoseconds_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<std::int64_t> nanoseconds_{0};
};

}  // namespace millrace
