// Where a rank is in its run, as other ranks see it.
#pragma once
#include <cstdint>

namespace millrace::watchdog {

// The part of the run. It is named in messages.
enum class Part : std::uint8_t { start, setup, index, open, train, evaluation, checkpoint, end };
const char* name_of(Part);

// What the main thread of a rank waits for. Only `none` and `file` are not a wait for other ranks.
enum class Wait : std::uint8_t {
  none,
  file,
  mpi_init,
  barrier,
  broadcast,
  all_reduce,
  all_gather,
  communicator,
  shared_memory,
  parallel_hdf5,
  finalize
};
const char* name_of(Wait);
inline bool for_ranks(Wait wait) { return wait != Wait::none && wait != Wait::file; }

// A copy of a rank's position. Trivially copyable: it is sent between hosts as bytes.
struct Position {
  std::int32_t rank = 0, node = 0, pid = 0;
  Part part = Part::start;
  Wait wait = Wait::none;
  Part file_part = Part::start;  // of the background thread that has waited longest for a file
  std::int64_t step = -1;        // the last finished step; -1: none
  std::uint64_t waits = 0;       // waits for other ranks that were begun; equal on all ranks that are equally far
  // Seconds, as counted by the watchdogs: time in which a watchdog did not run does not count.
  double quiet = 0;       // since the main thread made progress
  double file_quiet = 0;  // since the slowest background thread that waits for a file made progress
  double silent = 0;      // since the watchdog of the rank was seen to run
  char host[64] = "";
};

}  // namespace millrace::watchdog
