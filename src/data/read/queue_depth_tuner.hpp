// How many reads to have under way. By Little's law the reads under way are the rate times the latency: while a disk
// has room, more of them raise the rate; beyond, only the latency. So the depth climbs while the rate follows, goes
// back to the last depth that paid, and is tried anew from time to time, since others use the disk too. Private to the
// data room.
#pragma once
#include <cstdint>

namespace millrace {

class QueueDepthTuner {
 public:
  explicit QueueDepthTuner(int most);
  int depth() const { return depth_; }
  // A read of so many bytes has ended at `now` (seconds of any clock). full: all this time, as many as depth() were
  // under way; rates measured otherwise say nothing of the disk, and are dropped.
  void read_completed(std::uint64_t bytes, double now, bool full);

 private:
  enum class Trying { more, fewer, nothing };
  void judge(double rate);
  void move_to(int depth, Trying);

  const int most_;
  int depth_, good_;  // good_: the depth to go back to, with good_rate_
  double good_rate_ = 0, began_ = -1;
  std::uint64_t bytes_ = 0;
  int reads_ = 0, quiet_ = 0, tries_ = 0;  // quiet_: windows since the last try
  Trying trying_ = Trying::nothing;
};

}  // namespace millrace
