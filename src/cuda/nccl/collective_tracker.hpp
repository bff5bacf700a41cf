// Follows collective operations on the GPU without waiting for them. It measures their times for the account of the
// step, and finds operations that are stalled.
//
// Operations outside of captured steps are followed by events. Those of captured steps have events too, for their
// times. But an event forgets a replay as soon as the next one is launched. So whether a replay is stalled is decided
// by counters in host memory, which the graph itself increments. Thread-safe.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/block/block.hpp"
#include "cuda/nccl/watchdog.hpp"
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

  // Surround an operation in the stream; not during a capture of this thread. Operations end in the order in which they
  // begin. blocked: a stream that waits for the operation from now on; its span begins there.
  Operation begin(Watchdog::Kind, int tag, std::size_t bytes, StreamHandle, StreamHandle blocked = nullptr);
  void end(Operation, StreamHandle);
  // The same during a capture: begin_captured() before its first operation, end_captured() at its finish(), and the
  // other two around each operation between them. The graph must not outlive the tracker.
  void begin_captured(StreamHandle);
  void end_captured(StreamHandle);
  Operation begin_captured_operation(Watchdog::Kind, int tag, std::size_t bytes, StreamHandle,
                                     StreamHandle blocked = nullptr);
  void end_captured_operation(Operation, StreamHandle);

  // The spans of operations that completed since the last call. Must be called by the thread that launches replays. If
  // a captured step was replayed several times since then, it gives the spans of the last replay only, once that is
  // complete. In spans of replays, `queued` equals `started`.
  void take_spans(std::vector<CommSpan>& out);

  // For the watchdog thread, regularly: the stalled operation if there is one, and the number of operations begun.
  std::optional<Watchdog::StalledOperation> late();
  std::uint64_t begun();
  // The collective of a captured step that runs now; "" if there is none. Any thread; does not block.
  std::string running_operation();
  std::string explain(const Watchdog::StalledOperation& late, const std::string& who) const {
    return watchdog_.explain(late, who);
  }

 private:
  struct EventPair {
    cudaEvent_t started = nullptr, ended = nullptr;
  };
  static constexpr std::size_t max_captures = 1024;  // later ones share the last counters and give no spans
  struct Counters {
    std::uint64_t begun, ended;                        // replays of one captured step
    std::uint64_t operations_begun, operations_ended;  // in all its replays
  };
  struct Capture {
    std::vector<Operation> operations;
    std::uint64_t seen = 0;  // value of Counters::ended when its spans were last taken
  };
  EventPair take_pair();
  Operation prepare(Watchdog::Kind, int tag, std::size_t bytes, bool blocking);
  void poll();
  void add_span(const Operation&);
  void take_replayed();
  Watchdog::Replays replays() const;  // summed over all captured steps
  // Of the newest captured step.
  Counters& counters() { return counters_[std::min(captures_.size(), max_captures) - 1]; }
  Counters* counters_ = nullptr;  // max_captures of them, page-locked
  std::mutex mutex_;              // guards the members below
  StreamClock clock_;
  Watchdog watchdog_;
  std::deque<Operation> in_flight_;
  std::deque<Capture> captures_;
  std::vector<EventPair> spare_;
  std::vector<CommSpan> spans_;
};

}  // namespace millrace::cuda
