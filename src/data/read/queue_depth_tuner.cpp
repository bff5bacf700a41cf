#include "data/read/queue_depth_tuner.hpp"

#include <algorithm>

namespace millrace {
namespace {

constexpr int first_depth = 16, min_depth = 2;
constexpr double window_seconds = 0.02;  // minimum; rates over less time are noise where others use the CPU too
constexpr int min_quiet_windows = 4;     // between trials
// One of this many trials is of a shallower queue. A queue that is too shallow costs rate, one that is too deep only
// latency, so deeper queues are tried more often.
constexpr int trials_per_shallower = 4;
// A deeper queue is kept if its rate is at least min_gain times the good rate, a shallower one at least max_loss times.
constexpr double min_gain = 1.03, max_loss = 0.995;
// Below this ratio between the rate and the good rate (or the other way round), the disk itself has changed.
constexpr double changed_ratio = 0.75;

}  // namespace

QueueDepthTuner::QueueDepthTuner(int max_depth)
    : max_depth_(max_depth), depth_(std::min(first_depth, max_depth)), good_depth_(depth_) {}

void QueueDepthTuner::move_to(int depth, Trying trying) {
  depth_ = depth;
  trying_ = trying;
  quiet_windows_ = 0;
}

void QueueDepthTuner::read_completed(std::uint64_t bytes, double now, bool full) {
  if (!full || began_ < 0) {
    began_ = full ? now : -1;
    bytes_ = 0;
    reads_ = 0;
    return;
  }
  bytes_ += bytes;
  ++reads_;
  // At most a quarter of these reads were submitted at the previous depth.
  if (reads_ < 4 * depth_ || now < began_ + window_seconds) return;
  judge(double(bytes_) / (now - began_));
  began_ = now;
  bytes_ = 0;
  reads_ = 0;
}

void QueueDepthTuner::judge(double rate) {
  const int more = std::min(max_depth_, depth_ + std::max(1, depth_ / 2));
  const int fewer = std::max(min_depth, depth_ * 2 / 3);
  if (good_rate_ == 0) {
    good_rate_ = rate;
    return move_to(more, Trying::more);
  }
  if (trying_ == Trying::nothing) {
    const bool disk_changed = rate < changed_ratio * good_rate_ || rate > good_rate_ / changed_ratio;
    good_rate_ += disk_changed ? rate - good_rate_ : (rate - good_rate_) / 8;
    if (!disk_changed && ++quiet_windows_ < min_quiet_windows) return;
    const bool shallower = ++trials_ % trials_per_shallower == 0;
    move_to(shallower ? fewer : more, shallower ? Trying::fewer : Trying::more);
    return;
  }
  const bool keep = rate >= (trying_ == Trying::more ? min_gain : max_loss) * good_rate_;
  if (!keep) return move_to(good_depth_, Trying::nothing);
  // A shallower queue is judged by the rate of the deeper one from now on; else many small losses would add up.
  good_rate_ = trying_ == Trying::more ? rate : std::max(rate, good_rate_);
  good_depth_ = depth_;
  const int further = trying_ == Trying::more ? more : fewer;
  move_to(further, further == depth_ ? Trying::nothing : trying_);
}

}  // namespace millrace
