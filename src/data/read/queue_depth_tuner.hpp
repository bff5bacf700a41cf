// Tunes how many reads are kept in flight. By Little's law, the reads in flight are the rate times the latency. Up to
// the saturation of a disk, more of them raise the rate; beyond it they only raise the latency. So the depth grows
// while the rate follows, and returns to the last depth that paid off. From time to time other depths are tried again,
// because other programs use the disk too. Internal to data/.
#pragma once
#include <cstdint>

namespace millrace {

class QueueDepthTuner {
 public:
  explicit QueueDepthTuner(int max_depth);
  int depth() const { return depth_; }
  // Records that a read of this many bytes ended at `now` (seconds of any clock). full: since the previous call,
  // depth() reads were in flight all the time. Other rates say nothing about the disk and are dropped.
  void read_completed(std::uint64_t bytes, double now, bool full);

 private:
  enum class Trying { more, fewer, nothing };
  void judge(double rate);
  void move_to(int depth, Trying);

  const int max_depth_;
  int depth_;
  int good_depth_;        // the depth to return to after a trial that did not pay off
  double good_rate_ = 0;  // bytes/s at good_depth_; 0: not measured yet
  double began_ = -1;     // start of the measuring window; -1: there is none
  std::uint64_t bytes_ = 0;
  int reads_ = 0;          // in this window
  int quiet_windows_ = 0;  // since the last trial
  int trials_ = 0;
  Trying trying_ = Trying::nothing;
};

}  // namespace millrace
