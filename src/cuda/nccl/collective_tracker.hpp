// Follows operations on the GPU without ever waiting: their times for the account, and whether one of them is stuck. By
// events; but whether those of a captured step are stuck, from the first one to the step's finish(), is followed by
// counters in host memory that every replay moves on: an event would forget a replay when the next one is launched.
// Thread-safe.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/nccl/watchdog.hpp"
#include "cuda/runtime/block.hpp"
#include "cuda/runtime/stream_clock.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace::cuda {

class CollectiveTracker {
 public:
  struct Operation {
    Watchdog::Kind kind = Watchdog::Kind::sum;
    std::uint64_t number = 0;
    CommSpan span;
    cudaEvent_t started = nullptr, ended = nullptr;
  };

  explicit CollectiveTracker(double timeout_seconds);
  ~CollectiveTracker();
  CollectiveTracker(const CollectiveTracker&) = delete;
  CollectiveTracker& operator=(const CollectiveTracker&) = delete;

  // Not during a capture of this thread's. What is ended first was begun first.
  Operation begin(Watchdog::Kind, int tag, std::size_t bytes, StreamHandle);
  void end(Operation, StreamHandle);
  // During a capture: before its first operation and at its finish(), and each operation between them. The graph must
  // not outlive the tracker.
  void begin_captured(StreamHandle);
  void end_captured(StreamHandle);
  Operation begin_captured_operation(Watchdog::Kind, int tag, std::size_t bytes, StreamHandle);
  void end_captured_operation(Operation, StreamHandle);

  // By the thread that launches replays. Of a recording that was replayed several times since the last call, those of
  // the newest replay, and only when that is done; queued is then started.
  void take_spans(std::vector<CommSpan>& out);

  // Asked every now and then by another thread: what is late, and how much was begun by then.
  std::optional<Watchdog::StalledOperation> late();
  std::uint64_t begun();
  // The sum of a recorded step that runs now, "" where none does. From any thread, waits for nothing.
  std::string running_operation();
  std::string explain(const Watchdog::StalledOperation& late, const std::string& who) const {
    return watchdog_.explain(late, who);
  }

 private:
  struct EventPair {
    cudaEvent_t started = nullptr, ended = nullptr;
  };
  static constexpr std::size_t most_captures = 64;  // those behind share the last counters, and give no spans
  struct Counters {
    std::uint64_t begun, ended;                        // replays
    std::uint64_t operations_begun, operations_ended;  // of all replays
  };
  struct Capture {
    std::vector<Operation> operations;
    std::uint64_t seen = 0;  // replays whose spans were taken
  };
  EventPair take_pair();
  Operation prepare(Watchdog::Kind, int tag, std::size_t bytes);
  void poll();
  void add_span(const Operation&);
  void take_replayed();
  Watchdog::Replays replays() const;                                                         // of all recordings
  Counters& counters() { return counters_[std::min(captures_.size(), most_captures) - 1]; }  // of the newest recording
  Counters* counters_ = nullptr;  // most_captures of them, page-locked
  std::mutex mutex_;              // guards what follows
  StreamClock clock_;
  Watchdog watchdog_;
  std::deque<Operation> in_flight_;
  std::deque<Capture> captures_;
  std::vector<EventPair> spare_;
  std::vector<CommSpan> spans_;
};

}  // namespace millrace::cuda
