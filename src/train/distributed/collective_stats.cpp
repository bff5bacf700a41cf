#include "millrace/train/distributed/collective_stats.hpp"

#include <algorithm>

#include "millrace/train/distributed/buckets.hpp"

namespace millrace {
namespace {

// A wait of some seconds until the last of its spans ended. Its position is computed from the end of the spans, not
// from the time at which the wait began, because the clocks of the compute stream and of the spans differ slightly.
struct WaitInterval {
  double seconds = 0, end = 0;
  void until(const CommSpan& span) {
    end = std::max(end, span.ended);
    if (span.blocking) seconds -= span.ended - span.started;  // it was waited for when it started, not at the end
  }
  // Seconds of this wait in which the span was active.
  double in(const CommSpan& span) const {
    const double began = end - std::max(0.0, seconds);
    return std::max(0.0, std::min(span.ended, end) - std::max(span.started, began));
  }
};

}  // namespace

void CollectiveStats::add(const std::vector<CommSpan>& spans, const CollectiveWaits& waits) {
  WaitInterval sums{waits.sums}, squares{waits.squares};
  gathered_.assign(waits.gathers.size(), 0.0);
  for (const CommSpan& span : spans) {
    const auto tag = std::size_t(std::max(0, span.tag));
    if (is_norm_tag(span.tag)) continue;  // the step waits for all of it
    if (is_optimizer_tag(span.tag) || span.op != CollectiveOp::all_gather)
      (is_optimizer_tag(span.tag) ? squares : sums).until(span);
    else if (tag < gathered_.size())
      gathered_[tag] = std::max(gathered_[tag], span.ended);
  }
  for (const CommSpan& span : spans) {
    CollectiveOpStats& f = stats_[{span.tag, span.op}];
    const auto tag = std::size_t(std::max(0, span.tag));
    const double took = span.ended - span.started;
    f.tag = span.tag;
    f.op = span.op;
    ++f.times;
    f.bytes += span.bytes;
    f.ready += std::max(0.0, span.queued - waits.began);
    f.queued += std::max(0.0, span.started - span.queued);
    f.busy += took;
    if (is_norm_tag(span.tag))
      f.needed += std::max(0.0, span.started - waits.began);
    else if (is_optimizer_tag(span.tag))
      f.needed += waits.squares_needed;
    else if (span.op != CollectiveOp::all_gather)
      f.needed += waits.sums_needed;
    else if (tag < waits.gathers_needed.size())
      f.needed += waits.gathers_needed[tag];
    if (span.blocking || is_norm_tag(span.tag))
      f.exposed += took;
    else if (is_optimizer_tag(span.tag) || span.op != CollectiveOp::all_gather)
      f.exposed += (is_optimizer_tag(span.tag) ? squares : sums).in(span);
    else if (tag < gathered_.size())
      f.exposed += WaitInterval{waits.gathers[tag], gathered_[tag]}.in(span);
    busy_ += took;
    bytes_ += span.bytes;
  }
}

std::vector<CollectiveOpStats> CollectiveStats::stats() const {
  std::vector<CollectiveOpStats> out;
  for (const auto& [key, f] : stats_) out.push_back(f);
  std::stable_partition(out.begin(), out.end(), [](const CollectiveOpStats& f) { return f.tag >= 0; });
  return out;
}

}  // namespace millrace
