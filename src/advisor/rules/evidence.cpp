#include "advisor/rules/evidence.hpp"

#include <fmt/core.h>

#include "advisor/rules/thresholds.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

// "50 % of the time". A probe measures steps alone, so its shares are of the step.
std::string share_text(const BottleneckMetrics& e, Bound b) {
  return fmt::format("{:.0f} % of the {}", 100 * e.share(b), e.probed ? "step" : "time");
}

std::string input_evidence(const BottleneckMetrics& e) {
  const double demand = e.without.input > 0 ? e.run.batch / e.without.input : 0;
  std::string out =
      share_text(e, Bound::input) +
      fmt::format(" is spent waiting for samples; the loader can deliver {} samples/s, the step can consume {}",
                  format_count(e.input.loader_rate), format_count(demand));
  const double decoding = 100 * e.input.decoding_share;
  if (e.input.decoding_share >= min_stated_decoding)
    out += fmt::format(" (decoding is {:.0f} % of the loader's work, reading {:.0f} %)", decoding, 100 - decoding);
  const Straggler& s = e.straggler;
  if (s.rank >= 0 && e.probed && s.input_seconds > 0.5 * (e.times.step - e.without.input))
    out += fmt::format("; rank {} on {} waits {} ms longer than the others", s.rank, s.host, ms_text(s.input_seconds));
  return out;
}

std::string copy_evidence(const BottleneckMetrics& e) {
  return share_text(e, Bound::copy) +
         fmt::format(" is spent waiting for copies to the device, {} ms per step", ms_text(e.times.copy)) +
         (e.input.copy_rate > 0 ? fmt::format("; a single copy reaches {:.2f} GB/s", e.input.copy_rate * 1e-9) : "");
}

std::string communication_evidence(const BottleneckMetrics& e) {
  const bool late = e.recoverable(Bound::communication) <= 0.9 * e.share(Bound::communication);
  return share_text(e, Bound::communication) +
         fmt::format(
             " is spent waiting for all-reduces ({} ms per step with them, {} ms without{})", ms_text(e.without.input),
             ms_text(e.without.communication),
             late ? fmt::format("; {} ms of it waiting for the last rank", ms_text(e.times.late_rank_wait)).c_str()
                  : "");
}

}  // namespace

std::string ms_text(double seconds) { return fmt::format("{:.{}f}", seconds * 1e3, seconds < 1e-4 ? 4 : 2); }

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
             fmt::format(" is spent waiting for one slow rank, {} ms per step", ms_text(e.times.imbalance));
    case Bound::checkpoint:
      return fmt::format("{:.0f} % of the time is spent writing checkpoints", percent);
    case Bound::evaluation:
      return fmt::format("{:.0f} % of the time is spent in evaluation", percent);
    case Bound::host:
      return fmt::format("{:.0f} % of the time is spent on the host, between the phases of steps", percent);
    case Bound::startup:
      return fmt::format("{:.0f} % of the run is start-up", percent);
    case Bound::compute:
      break;
  }
  return share_text(e, Bound::compute) + fmt::format(" is spent computing ({} ms)", ms_text(e.without.communication));
}

}  // namespace millrace
