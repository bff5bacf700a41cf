// IndexingWatchdog: detects a file system that does not answer while rank 0 scans the files of a data set. The other
// ranks wait for rank 0 without a timeout. A watchdog thread observes the CPU time of the scanning thread: a thread
// that is blocked in a read uses none. Private to the data room.
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
  // Watches the calling thread. Warns after FaultOptions::slow_read seconds, once per file, and ends the run after
  // read_timeout seconds.
  explicit IndexingWatchdog(const FaultOptions&);
  ~IndexingWatchdog();
  IndexingWatchdog(const IndexingWatchdog&) = delete;
  void at(const std::string& what);  // the file or pattern that is now being read

 private:
  void run();
  void check(double elapsed_seconds);
  double cpu_seconds() const;  // of the watched thread

  const double slow_seconds_, timeout_;
  clockid_t clock_{};
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::string what_, warned_;
  double last_cpu_seconds_ = 0;
  double unchanged_seconds_ = 0;  // time since the watched thread last used the CPU
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace millrace
