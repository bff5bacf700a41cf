// Follows operations on the GPU without ever waiting: their times for the account, and whether one of them is stuck. By
// events; but those of a captured step are followed together, from the first one to the step's finish(), by two
// counters in host memory that every replay moves on: an event would forget a replay when the next one is launched.
// Thread-safe.
#pragma once
#include <cuda_runtime.h>

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "block.hpp"
#include "millrace/comm/collective.hpp"
#include "stream_clock.hpp"
#include "watchdog.hpp"

namespace millrace::cuda {

class Tracker {
 public:
  struct Operation {
    Watchdog::Kind kind = Watchdog::Kind::sum;
    std::uint64_t number = 0;
    CommSpan span;
    cudaEvent_t started = nullptr, ended = nullptr;
  };

  explicit Tracker(double timeout_seconds);
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // Not during a capture of this thread's. What is ended first was begun first.
  Operation begin(Watchdog::Kind, int tag, std::size_t bytes, Stream);
  void end(Operation, Stream);
  void take_spans(std::vector<CommSpan>& out);
  // During a capture: its first operation, and its finish(). The graph must not outlive the tracker.
  void begin_captured(Stream);
  void end_captured(Stream);

  // Asked every now and then by another thread: what is late, and how much was begun by then.
  std::optional<Watchdog::Late> late();
  std::uint64_t begun();
  std::string explain(const Watchdog::Late& late, const std::vector<int>& behind, const std::string& host) const {
    return watchdog_.explain(late, behind, host);
  }

 private:
  struct EventPair {
    cudaEvent_t started = nullptr, ended = nullptr;
  };
  EventPair take_pair();
  void poll();
  std::uint64_t* counters_ = nullptr;  // replays begun, replays ended; page-locked
  std::mutex mutex_;                   // guards what follows
  StreamClock clock_;
  Watchdog watchdog_;
  std::deque<Operation> in_flight_;
  std::vector<EventPair> spare_;
  std::vector<CommSpan> spans_;
};

}  // namespace millrace::cuda
