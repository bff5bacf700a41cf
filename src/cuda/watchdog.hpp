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

  // The oldest operation that is not done, for too long.
  struct Late {
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
  // How many times the operations of recorded steps were begun and ended so far, one step after another. Told often:
  // they are late when the same one stays unfinished.
  void replays(std::uint64_t begun, std::uint64_t ended, double now);
  std::optional<Late> late(double now) const;
  std::uint64_t begun() const { return done_ + begun_.size() + replays_begun_; }  // so far

  // One line for people. behind: this host's ranks that have not come as far; empty: none, or not known.
  std::string explain(const Late&, const std::vector<int>& behind, const std::string& host) const;

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
  std::uint64_t replays_begun_ = 0, replays_ended_ = 0;
  double replays_changed_ = 0;
};

}  // namespace millrace::cuda
