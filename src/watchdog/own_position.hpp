// What the threads of this process do. Private to the watchdog.
#pragma once
#include <time.h>

#include <array>
#include <atomic>

#include "watchdog/counted_time.hpp"
#include "watchdog/shared_position.hpp"

namespace millrace::watchdog {

// A background thread that waits for a file.
struct FileSlot {
  std::atomic<bool> used = false;
  std::atomic<std::uint64_t> beats = 0;
  std::atomic<Part> part = Part::start;
  ProgressMeter meter;  // of the watchdog's thread
};

struct OwnPosition {
  MappedPosition shared;
  std::array<FileSlot, 16> slots;
  clockid_t main_clock = 0;
  bool has_main_clock = false;
  ProgressMeter meter;

  OwnPosition();             // the calling thread becomes the main thread
  void tick(double passed);  // publishes that the watchdog runs, and the times without progress
};

// Null until start().
extern std::atomic<OwnPosition*> own_position;

}  // namespace millrace::watchdog
