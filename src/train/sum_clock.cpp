#include "sum_clock.hpp"

#include <algorithm>

namespace millrace {

void SumClock::add(const std::vector<CommSpan>& spans, double waited) {
  double end = 0;
  for (const CommSpan& span : spans) {
    end = std::max(end, span.ended);
    if (span.inside) waited -= span.ended - span.started;
  }
  waited = std::max(0.0, waited);  // at the end of the step
  for (const CommSpan& span : spans) {
    SumFigures& f = by_tag_[span.tag];
    const double took = span.ended - span.started;
    f.tag = span.tag, ++f.times, f.bytes += span.bytes;
    f.queued += std::max(0.0, span.started - span.queued), f.busy += took;
    f.exposed += span.inside ? took : std::clamp(span.ended - std::max(span.started, end - waited), 0.0, took);
    busy_ += took, bytes_ += span.bytes;
  }
}

std::vector<SumFigures> SumClock::figures() const {
  std::vector<SumFigures> out;
  for (const auto& [tag, f] : by_tag_) out.push_back(f);
  std::stable_partition(out.begin(), out.end(), [](const SumFigures& f) { return f.tag >= 0; });
  return out;
}

}  // namespace millrace
