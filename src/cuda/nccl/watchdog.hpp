// Decides whether communication is stalled. The caller reports when operations begin and when it finds them complete,
// with the time in seconds from the caller's clock. This class does not depend on CUDA, threads or clocks, so it is
// easy to test. Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace millrace::cuda {

class Watchdog {
 public:
  enum class Kind { sum, reduce_scatter, all_gather, broadcast, step, replay };
  static std::string name_of(Kind, int tag, std::size_t bytes);  // "all-reduce 3 (25 MiB)"

  // The progress of captured steps, from counters that their graphs increment. The totals are over all captured steps.
  struct Replays {
    std::uint64_t begun = 0, ended = 0;  // replays; at most one runs at a time
    std::uint64_t operations_begun = 0, operations_ended = 0;
    // The first operation of the running replay that is not complete. The three below are valid if `known`.
    bool known = false;
    Kind kind = Kind::replay;
    int tag = 0;
    std::size_t bytes = 0;
  };

  // The oldest incomplete operation, after the timeout.
  struct StalledOperation {
    bool recorded = false;  // it belongs to a captured step
    bool begun = true;      // false: it still waits for its input, the gradients
    Kind kind = Kind::sum;
    int tag = 0;
    std::size_t bytes = 0;
    double seconds = 0;       // since it began or, if that was later, since the operation before it completed
    std::uint64_t done = 0;   // operations completed before it
    std::size_t waiting = 0;  // operations that began after it
  };

  explicit Watchdog(double timeout_seconds) : timeout_(timeout_seconds) {}
  // An operation begins. Operations complete in the order in which they begin. Returns its number, from 1.
  std::uint64_t begin(Kind, int tag, std::size_t bytes, double now);
  // The operation and all before it are complete. May be called again for the same operation.
  void done(std::uint64_t number, double now);
  // Must be called often. A running replay is stalled if its counters do not change for the length of the timeout.
  void replays(const Replays&, double now);
  std::optional<StalledOperation> late(double now) const;
  std::uint64_t begun() const {  // operations that have begun so far, replays and their operations included
    return done_ + begun_.size() + replays_.begun + replays_.operations_begun;
  }

  // One line for the user. who: names the ranks that have not come as far.
  std::string explain(const StalledOperation&, const std::string& who) const;

 private:
  struct Begun {
    Kind kind;
    int tag;
    std::size_t bytes;
    double at;
  };
  double timeout_;
  std::deque<Begun> begun_;  // operations that have begun and are not complete
  std::uint64_t done_ = 0;
  double progress_ = 0;  // time of the last completion
  Replays replays_;
  double replays_changed_ = 0;
};

}  // namespace millrace::cuda
