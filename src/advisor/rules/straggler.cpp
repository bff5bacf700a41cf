// Ranks step together, so the slowest rank waits least in the all-reduces. What distinguishes it from the others is
// taken for the cause.
#include "millrace/advisor/rules/straggler.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/system/process.hpp"

namespace millrace {
namespace {

constexpr double min_share = 0.15;  // of the step; smaller differences are normal

double input(const RankAccount& r) {
  return r.seconds_in(Phase::data_wait) + r.seconds_in(Phase::copy) - r.first_wait();
}
double compute(const RankAccount& r) {
  return r.seconds_in(Phase::forward) + r.seconds_in(Phase::backward) + r.seconds_in(Phase::optimizer);
}

// The mean over all ranks but `excluded`.
template <class Get>
double mean_of_others(const std::vector<RankAccount>& ranks, const RankAccount& excluded, Get get) {
  double sum = -get(excluded);
  for (const RankAccount& r : ranks) sum += get(r);
  return sum / double(ranks.size() - 1);
}

// The slow rank, and the seconds of the whole run by which it exceeds the other ranks.
struct Suspect {
  const RankAccount& rank;
  const std::vector<RankAccount>& ranks;
  double more_input = 0, more_compute = 0;

  template <class Get>
  double others(Get get) const {
    return mean_of_others(ranks, rank, get);
  }
  bool slow_input() const { return more_input > more_compute; }
};

// Each of these functions returns a cause, or an empty text if it does not apply.

// The reason that throttled this rank's clock most compared with the others. What throttles all ranks alike makes none
// of them late.
std::string clock_throttling(const Suspect& s) {
  std::string out;
  double largest = 0;
  for (const auto& entry : s.rank.health.throttle_reasons) {  // clang 14 cannot capture structured bindings
    const std::string& reason = entry.first;
    const double here = entry.second;
    const double theirs = s.others([&](const RankAccount& r) {
      const auto it = r.health.throttle_reasons.find(reason);
      return it == r.health.throttle_reasons.end() ? 0.0 : it->second;
    });
    if (here < 0.1 || here <= 1.5 * theirs || here - theirs <= largest) continue;
    largest = here - theirs;
    out =
        fmt::format("its clock was throttled {:.0f} % of the time, the others' {:.0f} %: ", 100 * here, 100 * theirs) +
        reason;
  }
  return out;
}

// A quota throttles the loader's threads like those of the step. A slow disk is blamed only for the rest.
std::string cpu_quota(const Suspect& s) {
  const auto throttled = [](const RankAccount& r) { return std::max(0.0, r.process.throttled_seconds); };
  const double here = throttled(s.rank), theirs = s.others(throttled);
  const bool much = here > 0.05 * s.rank.wall_seconds && here > 1.5 * theirs;
  if (!much || (s.slow_input() && here - theirs <= 0.5 * s.more_input)) return "";
  return fmt::format("a CPU quota throttled it for {:.1f} s, the others for {:.1f} s", here, theirs);
}

std::string noisy_neighbour(const Suspect& s) {
  const auto contention = [&](const RankAccount& r) {
    return core_contention(s.ranks, int(&r - s.ranks.data())).share();
  };
  const double here = contention(s.rank), theirs = s.others(contention);
  if (here <= 0.1 || here <= 1.5 * theirs) return "";
  if (s.slow_input() && (here - theirs) * s.rank.wall_seconds <= 0.5 * s.more_input) return "";
  return fmt::format("other processes took {:.0f} % of its cores, {:.0f} % of the others': a noisy neighbour",
                     100 * here, 100 * theirs);
}

std::string slow_input(const Suspect& s) {
  return fmt::format("it waited {:.1f} s for samples, the others {:.1f} s: a slow disk or path", input(s.rank),
                     s.others(input));
}

std::string slower_clock(const Suspect& s) {
  const auto clock = [](const RankAccount& r) { return std::max(0.0, r.health.clock_mhz); };
  const double here = clock(s.rank), theirs = s.others(clock);
  if (here <= 0 || here >= 0.93 * theirs) return "";
  return fmt::format("its clock runs at {:.0f} MHz, the others' at {:.0f} MHz", here, theirs);
}

std::string fewer_cores(const Suspect& s) {
  const auto cores = [](const RankAccount& r) { return double(r.cores); };
  if (cores(s.rank) >= s.others(cores)) return "";
  return fmt::format("it has {:.0f} cores, the others {:.1f}", cores(s.rank), s.others(cores));
}

std::string preemption(const Suspect& s) {
  const auto per_second = [](const RankAccount& r) {
    return double(r.process.preempted) / std::max(1e-9, r.wall_seconds);
  };
  const double here = per_second(s.rank), theirs = s.others(per_second);
  if (here <= 50 || here <= 1.5 * theirs) return "";
  return fmt::format(
      "it was preempted {:.0f} times per second, the others {:.0f}: more threads or processes than cores", here,
      theirs);
}

std::string cause_of(const Suspect& s) {
  if (const std::string quota = cpu_quota(s); !quota.empty()) return quota;
  if (s.slow_input()) {
    const std::string neighbour = noisy_neighbour(s);
    return neighbour.empty() ? slow_input(s) : neighbour;
  }
  for (const auto& cause : {clock_throttling, slower_clock, fewer_cores, noisy_neighbour, preemption})
    if (const std::string found = cause(s); !found.empty()) return found;
  return fmt::format("it computed for {:.1f} s, the others for {:.1f} s; the measurements do not show why",
                     compute(s.rank), s.others(compute));
}

}  // namespace

CoreContention core_contention(const std::vector<RankAccount>& ranks, int rank) {
  const RankAccount& mine = ranks[std::size_t(rank)];
  const ProcessStats& p = mine.process;
  if (p.cores_busy_seconds < 0 || mine.wall_seconds <= 0) return {};
  const auto cores = cores_of(p.cores);
  // CPU time of this job on these cores. A rank that shares only some of them counts in proportion.
  double job_seconds = 0;
  for (const RankAccount& r : ranks) {
    if (r.host != mine.host) continue;
    const auto theirs = cores_of(r.process.cores);
    const auto shared = std::count_if(theirs.begin(), theirs.end(), [&](const auto& core) {
      return std::find(cores.begin(), cores.end(), core) != cores.end();
    });
    if (shared > 0) job_seconds += r.process.cpu_seconds * double(shared) / double(theirs.size());
  }
  return {.cores = double(cores.size()),
          .others = std::max(0.0, p.cores_busy_seconds - job_seconds) / mine.wall_seconds,
          .stolen = std::max(0.0, p.stolen_seconds) / mine.wall_seconds};
}

Straggler find_straggler(const std::vector<RankAccount>& ranks) {
  if (ranks.size() < 2 || ranks[0].steps == 0) return {};
  const auto own = [](const RankAccount& r) { return input(r) + compute(r); };
  const auto slow =
      std::max_element(ranks.begin(), ranks.end(), [&](const auto& a, const auto& b) { return own(a) < own(b); });
  const double more = own(*slow) - mean_of_others(ranks, *slow, own), steps = double(ranks[0].steps);
  if (more < min_share * (own(*slow) + slow->seconds_in(Phase::communication))) return {};
  const double more_input = std::max(0.0, input(*slow) - mean_of_others(ranks, *slow, input));
  return {.rank = int(slow - ranks.begin()),
          .host = slow->host,
          .cause = cause_of({*slow, ranks, more_input, more - more_input}),
          .seconds = more / steps,
          .input_seconds = std::min(more, more_input) / steps};
}

std::string straggler_line(const std::vector<RankAccount>& ranks) {
  const Straggler s = find_straggler(ranks);
  if (s.rank < 0) return "";
  return fmt::format("  straggler: rank {} on {}, {:.2f} ms per step slower than the others: ", s.rank, s.host,
                     s.seconds * 1e3) +
         s.cause + "\n";
}

}  // namespace millrace
