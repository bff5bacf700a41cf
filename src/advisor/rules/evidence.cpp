#include "advisor/rules/evidence.hpp"

#include "advisor/rules/thresholds.hpp"
#include "millrace/base/units.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

// "50 % of the time". A probe measures steps alone, so its shares are of the step.
std::string share_text(const BottleneckMetrics& e, Bound b) {
  return text("%.0f %% of the %s", 100 * e.share(b), e.probed ? "step" : "time");
}

std::string input_evidence(const BottleneckMetrics& e) {
  const double demand = e.without.input > 0 ? e.run.batch / e.without.input : 0;
  std::string out = share_text(e, Bound::input) +
                    text(" is spent waiting for samples; the loader can deliver %s samples/s, the step can consume %s",
                         format_count(e.input.loader_rate).c_str(), format_count(demand).c_str());
  const double decoding = 100 * e.input.decoding_share;
  if (e.input.decoding_share >= min_stated_decoding)
    out += text(" (decoding is %.0f %% of the loader's work, reading %.0f %%)", decoding, 100 - decoding);
  const Straggler& s = e.straggler;
  if (s.rank >= 0 && e.probed && s.input_seconds > 0.5 * (e.times.step - e.without.input))
    out += text("; rank %d on %s waits %s ms longer than the others", s.rank, s.host.c_str(),
                ms_text(s.input_seconds).c_str());
  return out;
}

std::string copy_evidence(const BottleneckMetrics& e) {
  return share_text(e, Bound::copy) +
         text(" is spent waiting for copies to the device, %s ms per step", ms_text(e.times.copy).c_str()) +
         (e.input.copy_rate > 0 ? text("; a single copy reaches %.2f GB/s", e.input.copy_rate * 1e-9) : "");
}

std::string communication_evidence(const BottleneckMetrics& e) {
  const bool late = e.recoverable(Bound::communication) <= 0.9 * e.share(Bound::communication);
  return share_text(e, Bound::communication) +
         text(" is spent waiting for all-reduces (%s ms per step with them, %s ms without%s)",
              ms_text(e.without.input).c_str(), ms_text(e.without.communication).c_str(),
              late ? text("; %s ms of it waiting for the last rank", ms_text(e.times.late_rank_wait).c_str()).c_str()
                   : "");
}

}  // namespace

std::string ms_text(double seconds) { return text(seconds < 1e-4 ? "%.4f" : "%.2f", seconds * 1e3); }

std::string join_clauses(const std::string& first, const std::string& second) {
  return second.empty() ? first : first + "; " + second;
}

std::string bound_evidence(const BottleneckMetrics& e, Bound b) {
  const double percent = 100 * e.share(b);
  switch (b) {
    case Bound::input:
      return input_evidence(e);
    case Bound::copy:
      return copy_evidence(e);
    case Bound::communication:
      return communication_evidence(e);
    case Bound::imbalance:
      return share_text(e, b) +
             text(" is spent waiting for one slow rank, %s ms per step", ms_text(e.times.imbalance).c_str());
    case Bound::checkpoint:
      return text("%.0f %% of the time is spent writing checkpoints", percent);
    case Bound::evaluation:
      return text("%.0f %% of the time is spent in evaluation", percent);
    case Bound::host:
      return text("%.0f %% of the time is spent on the host, between the phases of steps", percent);
    case Bound::startup:
      return text("%.0f %% of the run is start-up", percent);
    case Bound::compute:
      break;
  }
  return share_text(e, Bound::compute) + text(" is spent computing (%s ms)", ms_text(e.without.communication).c_str());
}

}  // namespace millrace
