// The position of a process in memory that other processes of the host can map. It is a memfd: it has no name that
// could be left behind, and needs no room in /dev/shm. Others open it as /proc/PID/fd/N.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/watchdog/position.hpp"

namespace millrace::watchdog {

// Zero-filled memory is a valid initial state.
struct SharedPosition {
  std::atomic<std::int32_t> rank, node;
  std::atomic<std::int64_t> step_plus_1;
  std::atomic<Part> part;
  std::atomic<Wait> wait;
  std::atomic<std::uint64_t> waits;  // for other ranks
  // Of the main thread: any change is progress. It changes before `part` and `wait` do.
  std::atomic<std::uint64_t> beats;
  // Written by the watchdog's thread.
  std::atomic<std::uint64_t> ticks;  // it runs
  std::atomic<double> last_tick;     // steady_seconds(), which are those of the host
  std::atomic<float> quiet, file_quiet;
  std::atomic<std::uint64_t> quiet_beats;  // the beats when `quiet` was counted; written after it
  std::atomic<Part> file_part;
  std::atomic<bool> left;      // the rank has ended as it should
  std::atomic<bool> ends_run;  // and reports that
  char host[64];
};
static_assert(sizeof(SharedPosition) <= 4096);

// quiet is 0 if the main thread has made progress since it was counted: it is not the time of the present wait.
Position copy_of(const SharedPosition&, int pid);

// A mapping of a position, and the file behind it.
struct MappedPosition {
  std::shared_ptr<SharedPosition> at;  // null: it cannot be mapped
  int file = -1;
  int pid = 0;
};
MappedPosition make_position();  // of this process; in private memory if there is no memfd
MappedPosition open_position(int pid, int file);

// The processes of the same job on this host that can be seen: for the time before MPI tells. `position` is null for a
// process that has not come to make_position().
struct JobProcess {
  int rank = 0;
  MappedPosition position;
};
std::vector<JobProcess> find_job();

}  // namespace millrace::watchdog
