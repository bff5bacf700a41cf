// Decides whether communication is stuck. It is told when operations begin and when they are seen done, and knows
// nothing of CUDA, threads or clocks: times, in seconds, are the caller's. Not thread-safe.
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
  static std::string name_of(Kind, int tag, std::size_t bytes);  // "sum 3 (25 MiB)"

  // Recorded steps, from counters that they move on themselves. Operations are counted over all of them.
  struct Replays {
    std::uint64_t begun = 0, ended = 0;  // one after another
    std::uint64_t operations_begun = 0, operations_ended = 0;
    // Of the one under way: the first operation that is not done, where it is known.
    bool known = false;
    Kind kind = Kind::replay;
    int tag = 0;
    std::size_t bytes = 0;
  };

  // The oldest operation that is not done, for too long.
  struct StalledOperation {
    bool recorded = false;  // it belongs to a recorded step
    bool begun = true;      // false: what it sums is not there yet
    Kind kind = Kind::sum;
    int tag = 0;
    std::size_t bytes = 0;
    double seconds = 0;       // since it was begun or, if later, since its predecessor was done
    std::uint64_t done = 0;   // operations before it
    std::size_t waiting = 0;  // operations behind it
  };

  explicit Watchdog(double timeout_seconds) : timeout_(timeout_seconds) {}
  // Operations end in the order in which they begin. Returns the operation's number, from 1.
  std::uint64_t begin(Kind, int tag, std::size_t bytes, double now);
  // The operation and all before it are done. What was said already may be said again.
  void done(std::uint64_t number, double now);
  // Told often: they are late when a step under way stays where it is.
  void replays(const Replays&, double now);
  std::optional<StalledOperation> late(double now) const;
  std::uint64_t begun() const {  // so far
    return done_ + begun_.size() + replays_.begun + replays_.operations_begun;
  }

  // One line for people. who: what is known of the ranks that have not come as far.
  std::string explain(const StalledOperation&, const std::string& who) const;

 private:
  struct Begun {
    Kind kind;
    int tag;
    std::size_t bytes;
    double at;
  };
  double timeout_;
  std::deque<Begun> begun_;  // and not done
  std::uint64_t done_ = 0;
  double progress_ = 0;  // when the last one was done
  Replays replays_;
  double replays_changed_ = 0;
};

}  // namespace millrace::cuda
