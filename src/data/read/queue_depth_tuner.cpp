#include "data/read/queue_depth_tuner.hpp"

#include <algorithm>

namespace millrace {
namespace {

constexpr int first_depth = 16, least_depth = 2;
constexpr double window_seconds = 0.02;       // at least: shorter rates are noise where others use the processor too
constexpr int quiet_windows = 4;              // between tries
constexpr int fewer_every = 4;                // tries: a queue too shallow costs rate, one too deep latency alone
constexpr double pays = 1.03, costs = 0.995;  // rates of a deeper and of a shallower queue, against the good one
constexpr double changed = 0.75;              // of the good rate: the disk is another one now, or busier

}  // namespace

QueueDepthTuner::QueueDepthTuner(int most) : most_(most), depth_(std::min(first_depth, most)), good_(depth_) {}

void QueueDepthTuner::move_to(int depth, Trying trying) { depth_ = depth, trying_ = trying, quiet_ = 0; }

void QueueDepthTuner::read_completed(std::uint64_t bytes, double now, bool full) {
  if (!full || began_ < 0) {
    began_ = full ? now : -1, bytes_ = 0, reads_ = 0;
    return;
  }
  bytes_ += bytes, ++reads_;
  // Reads that were begun at the depth before are a quarter of these at most.
  if (reads_ < 4 * depth_ || now < began_ + window_seconds) return;
  judge(double(bytes_) / (now - began_));
  began_ = now, bytes_ = 0, reads_ = 0;
}

void QueueDepthTuner::judge(double rate) {
  const int more = std::min(most_, depth_ + std::max(1, depth_ / 2)), fewer = std::max(least_depth, depth_ * 2 / 3);
  if (good_rate_ == 0) {
    good_rate_ = rate;
    return move_to(more, Trying::more);
  }
  if (trying_ == Trying::nothing) {
    const bool other = rate < changed * good_rate_ || rate > good_rate_ / changed;
    good_rate_ += other ? rate - good_rate_ : (rate - good_rate_) / 8;
    if (!other && ++quiet_ < quiet_windows) return;
    const bool shallower = ++tries_ % fewer_every == 0;
    move_to(shallower ? fewer : more, shallower ? Trying::fewer : Trying::more);
    return;
  }
  const bool keep = rate >= (trying_ == Trying::more ? pays : costs) * good_rate_;
  if (!keep) return move_to(good_, Trying::nothing);
  // A shallower queue is kept at the rate of the deeper one, else many small losses would pass as none.
  good_rate_ = trying_ == Trying::more ? rate : std::max(rate, good_rate_);
  good_ = depth_;
  const int further = trying_ == Trying::more ? more : fewer;
  move_to(further, further == depth_ ? Trying::nothing : trying_);
}

}  // namespace millrace
