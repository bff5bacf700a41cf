// While rank 0 lists the data the other ranks wait, and no time runs out on them. A thread that looks whether the one
// that lists still gets on: one that waits for a file system that does not answer uses no processor. Private to the
// data room.
#pragma once
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>

#include "millrace/data/index/faults.hpp"

namespace millrace {

class IndexingWatchdog {
 public:
  // Of the thread that makes it. After slow_read a warning, once a file; after read_timeout the end of the run.
  explicit IndexingWatchdog(const FaultOptions&);
  ~IndexingWatchdog();
  IndexingWatchdog(const IndexingWatchdog&) = delete;
  void at(const std::string& what);  // a file, a pattern

 private:
  void run();
  void check(double passed);
  double used() const;  // seconds of the processor, by the thread that is watched

  const double slow_seconds_, timeout_;
  clockid_t clock_{};
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::string what_, warned_;
  double seen_ = 0, unchanged_seconds_ = 0;  // seconds
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace millrace
