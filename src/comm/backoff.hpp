// Waiting for another rank without blocking a core: spin briefly, then yield, then sleep 30 microseconds at a time.
// Private to the comm room.
#pragma once
#include <chrono>
#include <thread>

#include "millrace/base/clock.hpp"

namespace millrace {

class Backoff {
 public:
  explicit Backoff(double timeout) : deadline_(steady_seconds() + timeout) {}
  // Pauses once. Returns false when the timeout has expired.
  bool wait() {
    if (++tries_ < 200) return true;
    if (tries_ < 400)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(30));
    return tries_ % 64 != 0 || steady_seconds() < deadline_;
  }
  void spin_again() { tries_ = 0; }  // after progress: starts with the short spin again; keeps the deadline

 private:
  int tries_ = 0;
  double deadline_;
};

}  // namespace millrace
