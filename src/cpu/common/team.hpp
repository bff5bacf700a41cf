// A team of threads that claim the parts of loops, and how they wait for the next loop.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "cpu/common/threads.hpp"

namespace millrace::cpu {

// A loop of several parts. `threads` is the thread_count() of the thread that runs it.
struct Loop {
  RunPart run;
  const void* body;
  int parts, members, threads;
};

class Team {
 public:
  explicit Team(int members);  // starts members - 1 threads. Error(config) if that is impossible
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int size() const { return int(parts_.size()); }
  std::vector<int> threads(int members) const;  // of the first members, as Linux numbers them. By member 0
  void run(const Loop&);                        // by the thread that made the team, and not within a part

  static int member();         // of the calling thread
  static int set_member(int);  // returns the one before
  static bool in_loop();
  static ThreadStats stats();

 private:
  // The parts of a member that nobody has claimed: the number of the loop (32 bits), the first part and the end (16
  // bits each). A thread that is late for a loop finds another number and takes nothing.
  struct alignas(64) Parts {
    std::atomic<std::uint64_t> unclaimed{0};
  };

  void work(int member);
  // noexcept: other threads run parts of the loop too, so an exception cannot leave it.
  int claim_and_run(int member, std::uint32_t loop, int members) noexcept;
  bool claim(Parts&, std::uint32_t loop, bool own, int& part);
  std::uint32_t await_loop(std::uint32_t seen, class Waiting&);
  void await_end(std::uint32_t others);
  void publish(const Loop&);
  void end();

  std::vector<Parts> parts_;               // by member
  std::vector<std::atomic<int>> numbers_;  // of the threads, by member; 0: it has not begun
  Loop loop_{};
  std::uint32_t number_ = 0;     // of the loop; never 0
  std::atomic<int> members_{0};  // of the loop
  std::atomic<bool> ends_{false};
  alignas(64) std::atomic<std::uint32_t> begun_{0};  // the number of the last loop; threads sleep on it
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<std::uint32_t> ended_{0};  // parts that others than the caller have ended; it sleeps on it
  std::atomic<bool> caller_sleeps_{false};
  std::vector<std::thread> threads_;
};

}  // namespace millrace::cpu
